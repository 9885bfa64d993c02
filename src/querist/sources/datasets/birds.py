"""`render:birds`: small pictures of birds drawn from sixteen concepts, each of which changes its own part and nothing else.

Drawn at 128 x 128 and averaged to 32 x 32. Place, size, tint and noise of picture i come from the seed and i alone, never from its
concepts: drawing a row again with some concepts changed is the exact physical edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Shaped, UInt8
from numpy.typing import ArrayLike

from querist.errors import BadOption, BadValues, ShapeMismatch
from querist.statistics import stream

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

__all__ = ["CLASSES", "CONCEPTS", "FLIPS", "TEMPLATES", "birds", "render"]

CONCEPTS = (
    "red body",
    "blue body",
    "yellow body",
    "dark head",
    "wing bar",
    "eye ring",
    "long bill",
    "hooked bill",
    "crest",
    "forked tail",
    "striped breast",
    "white belly",
    "long legs",
    "water",
    "tree",
    "cheek spot",
)
CLASSES = (
    "ember",
    "lapis",
    "canary",
    "rust",
    "plum",
    "coral",
    "fern",
    "indigo",
    "amber",
    "mallow",
)
TEMPLATES: UInt8[np.ndarray, "10 16"] = np.array(
    [
        [0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1],
        [0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1],
        [0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0],
        [1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1],
        [1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1],
        [1, 0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0, 0, 1, 1, 0],
        [0, 1, 1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0],
        [0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1],
        [0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 0],
        [1, 1, 0, 1, 1, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1],
    ],
    dtype=np.uint8,
)
"""The concepts of each class before flips; any two classes differ in six or more, every concept is in three classes or more."""
FLIPS = 0.07
SIZE, FINE = 32, 4
WHOLE = 0.88
"""The largest and farthest bird stays in the picture with bill and tail."""
SHIFT, STRETCH, TINT, NOISE = 3.0, 0.12, 10.0, 7.0
"""Place ± 3 pixels, size ± 12 %, normal noise of a part's colour and of a pixel, in levels of 255."""
PAINTS = np.array([(205, 45, 40), (45, 85, 210), (235, 205, 50)], dtype=float)
GREY = np.array([140, 140, 140], dtype=float)
PARTS = ("sky", "water", "tree", "body", "wing", "head", "bill", "legs", "belly", "mark")


def birds(
    n: int = 2400, *, seed: int = 0, flips: float = FLIPS
) -> tuple[UInt8[np.ndarray, "n 16"], Int[np.ndarray, "n"]]:
    """Concepts and labels of n birds: the classes in turn, every concept of a template flipped with probability `flips`.

    The pictures show the flipped concepts: `render(concepts, seed)`. Raises BadOption.
    """
    if n < 1 or not 0 <= flips <= 0.5:
        raise BadOption(
            "Birds need a number and a share of flips", value=f"n={n}, flips={flips}", allowed="n >= 1, 0 to 0.5"
        )
    labels = np.arange(n) % len(TEMPLATES)
    flipped = stream(seed, "birds", "flips").random((n, len(CONCEPTS))) < flips
    return TEMPLATES[labels] ^ flipped, labels


def render(concepts: ArrayLike, seed: int = 0, *, ids: ArrayLike | None = None) -> UInt8[np.ndarray, "n 32 32 3"]:
    """Pictures of concepts [n 16] of 0 and 1: a pure function of concepts, seed and ids.

    ids [n]: which place, size, tint and noise a picture has (0 … n − 1 without them), so that some rows can be drawn again.
    Raises ShapeMismatch, BadValues for other values or unknown cells.
    """
    given: Shaped[np.ndarray, "n 16"] = np.asarray(concepts)
    if given.ndim != 2 or given.shape[1] != len(CONCEPTS):
        raise ShapeMismatch("Birds have sixteen concepts", value=given.shape, allowed=f"[n {len(CONCEPTS)}]")
    if not np.isin(given, (0, 1)).all():
        raise BadValues(
            "A bird's concepts must be 0 or 1", value=str(given[~np.isin(given, (0, 1))][0]), allowed="0, 1"
        )
    number = np.arange(len(given)) if ids is None else np.asarray(ids)
    if number.shape != (len(given),):
        raise ShapeMismatch("Every row needs an id", value=number.shape, allowed=f"({len(given)},)")
    return np.stack([_picture(row.astype(bool), seed, int(i)) for row, i in zip(given, number, strict=True)])


def _picture(c: np.ndarray, seed: int, number: int) -> UInt8[np.ndarray, "32 32 3"]:
    from PIL import Image, ImageDraw

    rng = stream(seed, "birds", "picture", number)
    shift = rng.uniform(-SHIFT, SHIFT, 2) * FINE
    size = WHOLE * (1 + rng.uniform(-STRETCH, STRETCH))
    tint: dict[str, np.ndarray] = dict(zip(PARTS, rng.normal(0, TINT, (len(PARTS), 3)), strict=True))
    noise = rng.normal(0, NOISE, (SIZE, SIZE, 3))
    edge = SIZE * FINE
    canvas = Image.new("RGB", (edge, edge), _colour((200, 222, 240), tint["sky"]))
    pen = Pen(ImageDraw.Draw(canvas), edge / 2 - 1 + shift, size, tint)
    _background(pen, c, edge)
    _bird(pen, c)
    small = np.asarray(canvas, dtype=float).reshape(SIZE, FINE, SIZE, FINE, 3).mean(axis=(1, 3))
    return np.clip(np.rint(small + noise), 0, 255).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Pen:
    """Draws in the bird's own coordinates, whose origin is its middle and whose unit is a fine pixel at size 1."""

    draw: ImageDraw
    middle: np.ndarray
    size: float
    tint: dict[str, np.ndarray]

    def points(self, points: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
        """Canvas coordinates."""
        return [(float(self.middle[0] + self.size * x), float(self.middle[1] + self.size * y)) for x, y in points]

    def polygon(self, part: str, colour: ArrayLike, *points: tuple[float, float]) -> None:
        """A filled polygon."""
        self.draw.polygon(self.points(points), fill=_colour(colour, self.tint[part]))

    def ellipse(self, part: str, colour: ArrayLike, x: float, y: float, rx: float, ry: float) -> None:
        """A filled ellipse around (x, y)."""
        (left, top), (right, bottom) = self.points(((x - rx, y - ry), (x + rx, y + ry)))
        self.draw.ellipse((left, top, right, bottom), fill=_colour(colour, self.tint[part]))

    def line(self, part: str, colour: ArrayLike, width: float, *points: tuple[float, float]) -> None:
        """A line of that width."""
        self.draw.line(
            self.points(points), fill=_colour(colour, self.tint[part]), width=max(1, round(width * self.size))
        )


def _background(pen: Pen, c: np.ndarray, edge: int) -> None:
    if c[14]:
        pen.draw.rectangle((2, 0, 15, edge), fill=_colour((110, 75, 40), pen.tint["tree"]))
        pen.draw.ellipse((-14, -16, 34, 24), fill=_colour((50, 130, 55), pen.tint["tree"]))
    if c[13]:
        pen.draw.rectangle((0, edge - 20, edge, edge), fill=_colour((40, 105, 170), pen.tint["water"]))


def _bird(pen: Pen, c: np.ndarray) -> None:
    body = PAINTS[c[:3]].mean(axis=0) if c[:3].any() else GREY
    dark, wing = body * 0.55, body * 0.72
    bottom = 44 if c[12] else 32
    for x in (-6.0, 6.0):
        pen.line("legs", (230, 120, 40), 3.5, (x, 18), (x, bottom), (x + 7, bottom))
    if c[9]:
        pen.polygon("body", dark, (-24, -4), (-56, -20), (-40, 0), (-56, 16), (-24, 8))
    else:
        pen.polygon("body", dark, (-24, -4), (-50, -5), (-50, 7), (-24, 8))
    pen.ellipse("body", body, 0, 2, 30, 20)
    if c[11]:
        pen.polygon("belly", (250, 250, 245), (-20, 15), (-9, 11), (7, 11), (14, 13), (8, 20), (-8, 22))
    if c[10]:
        for x in (14.0, 20.0, 26.0):
            pen.line("mark", (35, 25, 20), 2.5, (x, -2), (x - 3, 10))
    pen.ellipse("wing", wing, -10, -2, 17, 9)
    if c[4]:
        pen.line("mark", (255, 255, 255), 5, (-22, -1), (3, -1))
    if c[8]:
        pen.polygon("mark", (255, 60, 160), (18, -30), (14, -48), (24, -40), (30, -50), (33, -32))
    pen.ellipse("head", (30, 28, 32) if c[3] else body, 26, -20, 15, 14)
    tip = 60 if c[6] else 49
    pen.polygon("bill", (250, 165, 35), (39, -25), (tip, -20), (39, -14))
    if c[7]:
        pen.polygon("bill", (250, 165, 35), (tip - 9, -22), (tip, -20), (tip - 1, -6), (tip - 6, -13))
    if c[5]:
        pen.ellipse("mark", (255, 255, 255), 30, -24, 7.5, 7.5)
    pen.ellipse("mark", (0, 0, 0), 30, -24, 3, 3)
    if c[15]:
        pen.ellipse("mark", (60, 220, 90), 20, -13, 5, 4.5)


def _colour(colour: ArrayLike, tint: np.ndarray) -> tuple[int, int, int]:
    r, g, b = np.clip(np.rint(np.asarray(colour, dtype=float) + tint), 0, 255).astype(int).tolist()
    return r, g, b
