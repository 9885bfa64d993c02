"""Models on the Hugging Face hub: the files that hold weights and configuration, fetched into the hub's own cache."""

from __future__ import annotations

import re
from pathlib import Path

from querist.errors import BadOption, MissingExtra, SourceNotFound

__all__ = ["fetch_model"]

_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_SAFE = ["*.safetensors", "*.safetensors.index.json", "config.json", "adapter_config.json"]
_PICKLED = ["*.bin", "*.bin.index.json", "config.json", "adapter_config.json"]


def fetch_model(name: str, revision: str | None = None) -> Path:
    """The local folder of `org/name`: its safetensors files, or its .bin files where it has none of those.

    Raises MissingExtra without huggingface-hub, BadOption for what is no name of a model, SourceNotFound where the hub does
    not have it or cannot be reached and the cache does not hold it.
    """
    if not _NAME.fullmatch(name):
        raise BadOption(
            "No name of a model on the hub", value=name, allowed="hf:ORG/NAME, as in hf:openai-community/gpt2"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError
    except ImportError:
        raise MissingExtra(
            "Reading from the hub needs the package huggingface-hub",
            value=f"hf:{name}",
            mend="pip install 'querist[hub]'",
        ) from None
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_SAFE))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=_PICKLED))
    except RepositoryNotFoundError:
        raise SourceNotFound(
            "The hub has no such model, or it is not open to you",
            value=f"hf:{name}",
            mend="Check the name, or log in with `hf auth login`",
        ) from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise SourceNotFound(
            f"The hub cannot be reached and the model is not in the cache ({first})",
            value=f"hf:{name}",
            mend="Check the connection, or name a folder that holds the model",
        ) from None
    return folder
