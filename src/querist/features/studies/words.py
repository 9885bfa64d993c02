"""What verbs and studies say alike: the command line that asks the same again, and several things given at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from querist.runs.study import StudyConfig

__all__ = ["command_words", "several"]


def command_words(command: str, config: StudyConfig, positional: Sequence[str]) -> list[str]:
    """The words after `querist` that give this config: positional fields first, then every option that is not at its default."""
    words = command.split()
    for name in positional:
        value = getattr(config, name)
        words += [str(one) for one in (value if isinstance(value, tuple) else (value,)) if one != ""]
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name in positional or value is None or value == field.default:
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag[2:]}")
        else:
            words += [word for one in (value if isinstance(value, tuple) else (value,)) for word in (flag, str(one))]
    return words


def several(what: Any, name: str) -> dict[str, Any]:
    """Things by name: a dictionary of things, a list of them (numbered), or one. A dictionary of tensors is one thing."""
    if isinstance(what, Mapping) and not any(hasattr(one, "dtype") for one in what.values()):
        return {str(key): one for key, one in what.items()}
    if isinstance(what, list) and what:
        return {name: what[0]} if len(what) == 1 else {f"{name}-{i + 1}": one for i, one in enumerate(what)}
    return {name: what}
