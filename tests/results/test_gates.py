"""Gates: reading, matching, nulls, and every mistake a person can make in one."""

from __future__ import annotations

import pytest

from querist.errors import BadOption, UnknownName
from querist.results.finding import Finding
from querist.results.gates import evaluate, parse
from querist.results.question import Question

QUESTIONS = [
    Question("weights.spikes", "?", "count", "0", "rule"),
    Question("weights.heavy-tail", "?", "exponent", "mp", "rule"),
]
FINDINGS = [
    Finding("a.0", "weights.spikes", 3, "count", 2, 4, 0, 0.01, "yes", "."),
    Finding("b.0", "weights.spikes", None, "count", None, None, 0, None, "cannot say", "."),
]
SUMMARY = {
    "layers": [{"layer_id": "a.0", "alpha": 1.5}, {"layer_id": "b.0", "alpha": None}],
    "n_failed": 0,
    "phases": {"x": 2},
}


def outcome(text):
    return evaluate(parse([text], QUESTIONS, "weights"), FINDINGS, SUMMARY)[0]


@pytest.mark.parametrize(
    ("text", "tripped"),
    [
        ("spikes.verdict == yes", True),
        ("weights.spikes.verdict == yes", True),
        ("spikes[b.*].verdict == yes", False),
        ("spikes.verdict == 'cannot say'", True),
        ("spikes.estimate > 2", True),
        ("spikes.estimate > 3", False),
        ("spikes[a.*].p <= .05", True),
        ("spikes[a.*].p <= 0.05", True),
        ("layers.alpha < 2", True),
        ("layers.alpha < 1", False),
        ("n_failed > 0", False),
        ("phases.x >= 2", True),
        ("spikes.verdict == yes and layers.alpha < 2", True),
        ("spikes.verdict == yes and layers.alpha < 1", False),
        ("heavy-tail.verdict == yes", False),
    ],
)
def test_gate_trips_where_any_member_matches(text, tripped):
    result = outcome(text)
    assert result.tripped is tripped
    assert bool(result.members) is tripped


def test_a_null_never_trips_and_is_told():
    result = outcome("layers.alpha > 100")
    assert not result.tripped
    assert result.nulls == ("layers[b.0].alpha",)
    assert "1 members have no value" in result.sentence()


@pytest.mark.parametrize(
    ("text", "kind", "fragment"),
    [
        ("spiks.verdict == yes", UnknownName, "spikes"),
        ("spiks.estimate > 3", UnknownName, "spikes"),
        ("spikes[x].verdict", BadOption, "PATH OP VALUE"),
        ("spikes.colour == 3", UnknownName, "verdict, estimate"),
        ("spikes.estimate > many", BadOption, "number"),
        ("spikes.verdict > yes", BadOption, "=="),
        ("spikes.verdict == perhaps", BadOption, "cannot say"),
    ],
)
def test_mistakes_are_found_before_the_work(text, kind, fragment):
    with pytest.raises(kind) as caught:
        parse([text], QUESTIONS, "weights")
    assert fragment in str(caught.value)


@pytest.mark.parametrize(
    ("text", "fragment"), [("layer.alpha < 2", "layers"), ("layers.alhpa < 2", "alpha"), ("spikes[zz*].p < 1", "a.0")]
)
def test_unknown_paths_name_the_near_ones_after_the_work(text, fragment):
    with pytest.raises(UnknownName) as caught:
        outcome(text)
    assert fragment in str(caught.value)
