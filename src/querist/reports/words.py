"""The command line that asks the same again, made from a config."""

from __future__ import annotations

from collections.abc import Sequence

from querist.runs.study import StudyConfig

__all__ = ["command_words"]


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
