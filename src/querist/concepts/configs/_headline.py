"""The one attack that findings speak of, as it is written and said."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DEFAULT_HEADLINE", "Headline", "headline_of"]

DEFAULT_HEADLINE = "size=5,rate=0.01,mode=mix,selector=cat+"


class Headline(NamedTuple):
    """The one attack that findings speak of."""

    size: int
    rate: float
    mode: str
    selector: str

    def __str__(self) -> str:
        return f"size={self.size},rate={self.rate:g},mode={self.mode},selector={self.selector}"

    @property
    def said(self) -> str:
        """The attack in words."""
        concepts = f"{self.size} concept{'s' if self.size > 1 else ''}"
        chosen = "drawn at random" if self.selector == "random" else f"chosen by {self.selector.upper()}"
        return f"{concepts} {chosen}, {100 * self.rate:g} % in mode {self.mode}"


def headline_of(text: str) -> Headline:
    """`size=5,rate=0.01,mode=mix,selector=cat+`, any part of it; what is not named is as in the default. Raises ValueError."""
    held: dict[str, str] = {"size": "5", "rate": "0.01", "mode": "mix", "selector": "cat+"}
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name, _, value = part.partition("=")
        if name not in held or not value:
            raise ValueError(f"parts of {DEFAULT_HEADLINE}")
        held[name] = value
    try:
        size, rate = int(held["size"]), float(held["rate"])
    except ValueError:
        raise ValueError(f"numbers, as in {DEFAULT_HEADLINE}") from None
    if size < 1:
        raise ValueError("a size of 1 or more")
    if not 0 < rate <= 1:
        raise ValueError("a rate with 0 < rate <= 1")
    if held["mode"] not in ("mix", "dirty", "clean"):
        raise ValueError("mode mix, dirty or clean")
    if held["selector"] not in ("cat", "cat+", "random"):
        raise ValueError("selector cat, cat+ or random")
    return Headline(size, rate, held["mode"], held["selector"])
