"""A concept bottleneck model: pictures to concepts, concepts to classes, and what may be changed between the two."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from querist import files
from querist.concepts.data import SPACES, Space
from querist.concepts.heads import Head, SmallBackbone
from querist.concepts.triggers import Trigger
from querist.errors import BadOption, CorruptFile, ShapeMismatch, SourceNotFound, UnsafeFile, WeightsMismatch

__all__ = ["CBM", "Mode"]

Mode = Literal["joint", "sequential", "independent"]
MODES: tuple[Mode, ...] = ("joint", "sequential", "independent")
WEIGHTS, ABOUT, FORM = "model.safetensors", "cbm.json", "querist.cbm/1"
BATCH = 512


class CBM(nn.Module):
    """f reads what g says of the concepts, as `input`: logits, probabilities, or 0/1. g may be None: x are then the concepts.

    g: any network to concept logits [n k]; f: any network from [n k] to class logits [n L]. scale [k 2]: the 5 % and 95 %
    quantile of the training logits, with which logits are intervened on. Where g and f lie on two devices f is moved to g's, and
    `warnings` says so.
    """

    scale: torch.Tensor

    def __init__(
        self,
        g: nn.Module | None,
        f: nn.Module,
        *,
        mode: Mode = "joint",
        input: Space = "logit",
        scale: np.ndarray | None = None,
        concept_names: Sequence[str] = (),
        classes: Sequence[Any] = (),
    ):
        super().__init__()
        if mode not in MODES or input not in SPACES:
            raise BadOption(
                "No such mode or input of a bottleneck",
                value=f"{mode}, {input}",
                allowed=f"{', '.join(MODES)}; {', '.join(SPACES)}",
            )
        places = [next((p.device for p in part.parameters()), None) for part in (g, f) if part is not None]
        self.warnings: tuple[str, ...] = ()
        if len({place for place in places if place is not None}) > 1 and places[0] is not None:
            f = f.to(places[0])
            self.warnings = (f"f lay on {places[1]} and was moved to {places[0]}, where g is",)
        self.g, self.f = g, f
        self.mode: Mode = mode
        self.input: Space = input
        self.concept_names, self.classes = tuple(concept_names), tuple(classes)
        self.register_buffer(
            "scale", torch.as_tensor(np.zeros((0, 2)) if scale is None else scale, dtype=torch.float32)
        )

    def bottleneck(self, x: torch.Tensor) -> torch.Tensor:
        """What f reads [n k]: g's logits as `input`; x itself without g."""
        return x if self.g is None else as_input(self.g(x), self.input)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class logits [n L]."""
        return self.f(self.bottleneck(x))

    def predict_concepts(self, x: Any, *, batch: int = BATCH) -> Float[np.ndarray, "n k"]:
        """The bottleneck's values, in the space `input`."""
        return self._run(self.bottleneck, x, batch)

    def scores(self, concepts: Any, *, batch: int = BATCH) -> Float[np.ndarray, "n L"]:
        """Class logits of concepts [n k] in the space `input`."""
        return self._run(self.f, concepts, batch)

    def predict(self, x: Any, *, batch: int = BATCH) -> Int[np.ndarray, "n"]:
        """Class codes of pictures (of concepts without g)."""
        return self._run(self, x, batch).argmax(axis=1)

    def intervene(
        self, x: Any, index: Sequence[int], values: Sequence[int], *, strength: str = "quantile"
    ) -> Int[np.ndarray, "n"]:
        """Class codes after these concepts are set to 0 or 1 at the bottleneck; in logits by `strength` of `Trigger.apply`.

        Source: Koh et al. (2020), section 4.4.
        """
        held = self.predict_concepts(x)
        scale = self.scale.cpu().numpy() if len(self.scale) else None
        made = Trigger(tuple(index), tuple(values)).apply(held, space=self.input, strength=strength, scale=scale)
        return self.scores(made.astype(np.float32)).argmax(axis=1)

    def _run(self, network: Any, x: Any, batch: int) -> np.ndarray:
        place = next((p.device for p in self.parameters()), torch.device("cpu"))
        modes = [(part, part.training) for part in self.modules()]
        self.eval()
        try:
            with torch.inference_mode():
                parts = [
                    network(_read(x[i : i + batch]).to(place)).detach().float().cpu() for i in range(0, len(x), batch)
                ]
        finally:
            for part, was in modes:
                part.training = was
        if not parts:
            raise ShapeMismatch("There are no rows to predict", value=np.shape(x), allowed="one row or more")
        return torch.cat(parts).numpy()

    def save(self, folder: Path | str) -> None:
        """Write weights as safetensors and the rest as JSON, never a pickled module.

        Networks other than `Head` and `SmallBackbone` are kept by their weights; `load` is then given the network.
        """
        from safetensors.torch import save

        about = {
            "format": FORM,
            "mode": self.mode,
            "input": self.input,
            "concept_names": list(self.concept_names),
            "classes": [c.item() if isinstance(c, np.generic) else c for c in self.classes],
            "g": _described(self.g),
            "f": _described(self.f),
        }
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: value.detach().cpu().contiguous() for name, value in self.state_dict().items()}
        files.write_bytes(folder / WEIGHTS, save(state))
        files.write_json(folder / ABOUT, about)

    @classmethod
    def load(cls, folder: Path | str, *, g: nn.Module | None = None, f: nn.Module | None = None) -> CBM:
        """The model that `save` wrote; g, f: the networks, where they are not querist's own.

        Raises SourceNotFound, UnsafeFile for a folder of pickled files alone, CorruptFile, WeightsMismatch, BadOption for a
        network that must be given.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        folder = Path(folder)
        if not (folder / ABOUT).is_file() or not (folder / WEIGHTS).is_file():
            pickled = (
                [p.name for p in folder.glob("*") if p.suffix in (".pt", ".pth", ".pkl", ".bin")]
                if folder.is_dir()
                else []
            )
            if pickled or folder.suffix in (".pt", ".pth", ".pkl", ".bin"):
                raise UnsafeFile(
                    "A model is read from safetensors and JSON only",
                    value=", ".join(pickled) or str(folder),
                    allowed=f"a folder with {WEIGHTS} and {ABOUT}",
                    mend="Build CBM(g, f) from state dicts, and save it",
                )
            raise SourceNotFound(
                "There is no saved model here", value=str(folder), allowed=f"a folder with {WEIGHTS} and {ABOUT}"
            )
        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            state = load_file(folder / WEIGHTS)
            if about["format"] != FORM:
                raise ValueError(about["format"])
            made = cls(
                _built(about["g"], g, "g"),
                _built(about["f"], f, "f") or Head(1, 1),
                mode=about["mode"],
                input=about["input"],
                scale=state["scale"].numpy(),
                concept_names=about["concept_names"],
                classes=about["classes"],
            )
        except (ValueError, KeyError, TypeError, SafetensorError) as error:
            if isinstance(error, BadOption):
                raise
            raise CorruptFile(
                "The saved model cannot be read", value=f"{folder}: {error}", mend="Save it again"
            ) from error
        try:
            made.load_state_dict(state)
        except RuntimeError as error:
            raise WeightsMismatch(
                "The weights are not this network's",
                value=str(error).splitlines()[-1].strip(),
                mend="Give the network that was saved",
            ) from None
        return made.eval()


def as_input(logits: torch.Tensor, input: Space) -> torch.Tensor:
    """Concept logits as f reads them."""
    if input == "logit":
        return logits
    return torch.sigmoid(logits) if input == "prob" else (logits > 0).to(logits.dtype)


def _read(rows: Any) -> torch.Tensor:
    """One batch of an array, which may lie on disk, or of a tensor."""
    part = rows if isinstance(rows, torch.Tensor) else torch.as_tensor(np.array(rows))
    return part.float() if part.dtype == torch.float64 else part


def _described(network: nn.Module | None) -> dict[str, Any] | None:
    if network is None:
        return None
    if type(network) is Head:
        return {"kind": "head", "k": network.k, "classes": network.classes, "head": network.head}
    if type(network) is SmallBackbone:
        return {"kind": "small", "k": network.k, "width": network.width}
    return {"kind": "other", "type": type(network).__qualname__}


def _built(about: Mapping[str, Any] | None, given: nn.Module | None, name: str) -> nn.Module | None:
    if given is not None or about is None:
        return given
    if about["kind"] == "head":
        return Head(about["k"], about["classes"], head=about["head"])
    if about["kind"] == "small":
        return SmallBackbone(about["k"], width=about["width"])
    raise BadOption(
        f"The network {name} is not querist's own", value=about["type"], allowed="its weights", mend=f"Pass {name}="
    )
