"""The room's public names come when they are asked for, and asking for the room alone loads nothing heavy."""

from __future__ import annotations

import inspect
import types

from tests.test_architecture import imported_after

from querist import effects


def test_importing_the_room_or_a_metric_loads_nothing_heavy():
    assert imported_after("import querist.effects") == set()
    assert (
        imported_after(
            "from querist.effects import qini, simulate; simulate(9, base_scale=1, increment_scale=1, seed=0)"
        )
        == set()
    )


def test_every_public_name_is_there_and_documented():
    for name in effects.__all__:
        value = getattr(effects, name)
        assert not isinstance(value, types.ModuleType), name
        assert inspect.getdoc(value), name
    assert set(effects.__all__) <= set(dir(effects))
