"""What is done to a picture before a network sees it: channels, size, scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from querist.errors import BadOption, ShapeMismatch

__all__ = ["Transform"]

_LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True)
class Transform:
    """Options of `--size --channels --mean --std --pad`.

    size: side in pixels, or (height, width); pictures of another size are scaled (bilinear, anti-aliased), or with `pad` set
        into a black frame of that size. Without it pictures keep their size.
    channels: 3 repeats grey pictures, 1 turns colour into luminance. Without it pictures keep their channels.
    mean, std: per channel, in units of 0..1; `(x - mean) / std`.
    pad: frame smaller pictures instead of scaling them.

    Bytes are divided by 255, 16-bit numbers by 65535, truth values are 0 and 1; floating numbers are taken as they are.
    """

    size: int | tuple[int, int] | None = None
    channels: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    pad: bool = False

    def __post_init__(self) -> None:
        if self.size is not None and min(self.sides or (0,)) < 1:
            raise BadOption(
                "A picture's size must be at least 1", value=self.size, allowed="pixels, or height and width"
            )
        if self.channels not in (None, 1, 3):
            raise BadOption("Pictures have 1 or 3 channels", value=self.channels, allowed="--channels 1 or 3")
        if self.pad and self.size is None:
            raise BadOption("--pad needs to know how large the frame is", value="--pad", mend="Give --size as well")
        for name in ("mean", "std"):
            values = getattr(self, name)
            if values is not None and not (values and np.all(np.isfinite(values))):
                raise BadOption(f"The option --{name} needs numbers", value=values, allowed="such as .485,.456,.406")
        if self.std is not None and min(self.std) <= 0:
            raise BadOption("Standard deviations must be above 0", value=self.std)

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width."""
        return (self.size, self.size) if isinstance(self.size, int) else self.size

    def __call__(self, pictures: Any) -> Float32[np.ndarray, "b c h w"]:
        """A stack of pictures [b, h, w, c] of one shape, or a list of [h, w, c] of any, as [b, c, h, w].

        Raises ShapeMismatch for pictures of several sizes without `size`, too large for the frame, or whose channels do not
        agree with `channels`, `mean` or `std`.
        """
        groups = [pictures] if isinstance(pictures, np.ndarray) else [picture[None] for picture in pictures]
        done = [self._sized(self._channelled(group)) for group in groups]
        shapes = {piece.shape[1:] for piece in done}
        if len(shapes) > 1:
            found = " and ".join(_spelled(shape) for shape in sorted(shapes)[:2])
            same = len({shape[:2] for shape in shapes}) == 1
            raise ShapeMismatch(
                f"Pictures of one data set have different {'channels' if same else 'sizes'}",
                value=found,
                mend="Give --channels 3" if same else "Give --size (and --pad to frame them instead of scaling)",
            )
        stack = np.concatenate([self._scaled(piece) for piece in done])
        return np.ascontiguousarray(stack.transpose(0, 3, 1, 2))

    def _channelled(self, x: np.ndarray) -> np.ndarray:
        have, want = x.shape[-1], self.channels
        if have == 4:  # the alpha channel says nothing of the picture's colours
            x, have = x[..., :3], 3
        if want is None or want == have:
            return x
        if have == 1:
            return np.repeat(x, want, axis=-1)
        if have == 3 and want == 1:
            grey = x @ _LUMA
            return (np.rint(grey) if x.dtype.kind in "ui" else grey).astype(x.dtype)[..., None]
        raise ShapeMismatch(
            f"Pictures of {have} channels cannot be given {want}",
            value=_spelled(x.shape[1:]),
            allowed="1 or 3 channels",
        )

    def _sized(self, x: np.ndarray) -> np.ndarray:
        sides = self.sides
        if sides is None or x.shape[1:3] == sides:
            return x
        if not self.pad:
            return np.stack([_resized(picture, sides) for picture in x])
        spare = [side - have for side, have in zip(sides, x.shape[1:3], strict=True)]
        if min(spare) < 0:
            raise ShapeMismatch(
                f"A picture is larger than the frame of {sides[0]} x {sides[1]}",
                value=_spelled(x.shape[1:]),
                mend="Give a larger --size, or leave --pad out to scale pictures",
            )
        frame = [(0, 0), *((room // 2, room - room // 2) for room in spare), (0, 0)]
        return np.pad(x, frame)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "u" and x.dtype.itemsize <= 2:
            out = x.astype(np.float32) / np.float32(255 if x.dtype.itemsize == 1 else 65535)
        else:
            out = x.astype(np.float32)
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, x.shape[-1]):
                raise ShapeMismatch(
                    f"--{name} has {len(values)} numbers and pictures have {x.shape[-1]} channels",
                    value=_spelled(x.shape[1:]),
                    mend="Give --channels 3" if len(values) == 3 else f"Give {x.shape[-1]} numbers",
                )
        if self.mean is not None:
            out -= np.asarray(self.mean, dtype=np.float32)
        if self.std is not None:
            out /= np.asarray(self.std, dtype=np.float32)
        return out


def _spelled(shape: tuple[int, ...]) -> str:
    return f"[{shape[2]}, {shape[0]}, {shape[1]}]"


def _resized(picture: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """One picture [h, w, c] scaled. Bytes stay bytes; other numbers are scaled channel by channel in float32."""
    from PIL import Image

    size = (sides[1], sides[0])
    if picture.dtype == np.uint8 and picture.shape[-1] in (1, 3):
        image = Image.fromarray(picture[..., 0] if picture.shape[-1] == 1 else np.ascontiguousarray(picture))
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR)).reshape(*sides, -1)
    planes = [
        np.asarray(
            Image.fromarray(np.ascontiguousarray(picture[..., c], dtype=np.float32)).resize(
                size, Image.Resampling.BILINEAR
            )
        )
        for c in range(picture.shape[-1])
    ]
    out = np.stack(planes, axis=-1)
    return out if picture.dtype.kind == "f" else np.rint(out).astype(picture.dtype)
