"""Tensors of a model, one at a time: references to content in files of every common format, in memory, or in a module."""

from querist.sources.tensors.open import open_source
from querist.sources.tensors.ref import PassedOver, TensorRef, TensorSource
from querist.sources.tensors.safetensor import write_safetensors
from querist.sources.tensors.select import nothing_selected

__all__ = ["PassedOver", "TensorRef", "TensorSource", "nothing_selected", "open_source", "write_safetensors"]
