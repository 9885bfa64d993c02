"""Values of a lazy mapping: made when asked for, once."""

from __future__ import annotations

from querist.results.lazy import Lazy


def test_a_value_is_made_when_it_is_asked_for_and_once():
    made = []
    values = Lazy({name: lambda name=name: made.append(name) or name.upper() for name in ("b", "a")})
    assert list(values) == ["b", "a"]
    assert len(values) == 2
    assert "a" in values
    assert made == []
    assert values["a"] == values["a"] == "A"
    assert made == ["a"]
    assert dict(values) == {"b": "B", "a": "A"}


def test_a_change_waits_for_its_value():
    made = []
    longer = Lazy({"a": lambda: made.append("a") or 2}).then(lambda name, value: name * value)
    assert made == []
    assert longer["a"] == "aa"
    assert made == ["a"]
