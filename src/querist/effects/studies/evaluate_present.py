"""What an evaluation shows: its report's sections and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.effects.configs import EvaluateConfig, named_numbers
from querist.effects.questions import EVALUATE_QUESTIONS
from querist.effects.studies.people import Opened
from querist.effects.tables import EVALUATE_TABLES
from querist.results.layout import Layout, Section

__all__ = ["lay_out", "warn"]

LEAKS = 0.01


def lay_out(config: EvaluateConfig, people: Opened, tables: Mapping[str, pl.DataFrame], drawn: Sequence[Any]) -> Layout:
    """People, average effects, rankings, policies, calibration."""
    names = {figure.name for figure in drawn}

    def filled(*wanted: str) -> tuple[str, ...]:
        return tuple(name for name in wanted if tables[name].height)

    def figures(*wanted: str) -> tuple[str, ...]:
        return tuple(name for name in sorted(names) if name.startswith(wanted))

    sources = ", ".join(tables["sources"]["score"].to_list())
    arms = ", ".join(people.names[1:])
    shares = "arm shares" if people.shares is None else "the design's probabilities"
    units = "people" if people.people.cluster is None else f"clusters ({config.cluster})"
    sections = (
        Section(
            "Who is judged on whom",
            words=(
                f"{sources} on {len(people):,} people, control {people.names[0]}, arms {arms}. Propensities are {shares}; intervals take "
                f"{units} as independent. No score may depend on the arm that a person was given, and none may come from rows that its "
                "model was fitted on.",
            ),
            findings=(("*", "effects.fresh-rows"), ("*", "effects.arm-hidden")),
            tables=filled("sources", "seen"),
        ),
        Section(
            "Effects on average",
            words=(
                "Before any model: what arms change on average"
                + (
                    "."
                    if people.arms == 2
                    else ", in three parts. The base effect is that of being treated at all, the mean over arms at the tier weights; an "
                    "increment is what one arm adds to it."
                ),
            ),
            findings=(("*", "effects.any-effect"), ("*", "effects.arms-differ")),
            figures=figures("ladder"),
            tables=filled("ate", "arms_differ"),
        ),
        Section(
            "Do scores find the people who gain?",
            words=(
                "Numbers of the rate convention are in outcome per person, 0 in a random order. Ranking people by their natural response "
                "(what they would do untreated) costs no uplift model and often does well: a score must beat it on the same people. Qini "
                "and AUUC of the two libraries stand under their names; they cannot be compared with each other, nor across outcomes.",
            ),
            findings=(("*", "effects.effect-varies"), ("*", "effects.beats-natural")),
            figures=figures("gain"),
            tables=filled("metrics", "paired", "curves"),
        ),
        Section(
            "Is it worth following them?",
            words=(
                "Each person gets the arm with the largest predicted effect, control where none is above 0. Beside it stand all under "
                "control, everybody under one arm, the best single arm (chosen on one half, valued on the other), arms at "
                "random in equal shares, and the same number treated by natural response.",
                *_direction(config, people),
            ),
            findings=(("*", "effects.beats-single-arm"),),
            figures=figures("policies"),
            tables=filled("policies", "multi_arm"),
        ),
        Section(
            "Are predictions true in size?",
            words=("Effect scores regressed on predicted effects; bins hold equal numbers of people, ties together.",),
            findings=(("*", "effects.calibrated"),),
            figures=figures("calibration"),
            tables=filled("calibration", "calibration_bins"),
        ),
    )
    return Layout(
        "Is this model worth using?",
        "Scores of effects held against outcomes of other people, each number beside random order, natural response and the best "
        "single arm.",
        sections,
        EVALUATE_TABLES,
        EVALUATE_QUESTIONS,
    )


def _direction(config: EvaluateConfig, people: Opened) -> tuple[str, ...]:
    """Which way is better, for outcomes of which it was not said."""
    stated = named_numbers(config.value, "--value")
    lower = [name for name in people.outcomes.names if stated.get(name, 0.0) < 0]
    told = []
    if lower:
        told.append(
            f"Less of {', '.join(lower)} is better (--value), so it is judged by its worth alone: `value` is the outcomes' worth."
        )
    if not stated:
        told.append("More of an outcome counts as better. Where less is, say so by its worth: --value OUTCOME=-1.")
    return tuple(told)


def warn(people: Opened, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """What a reader must know before trusting the numbers."""
    found = [*people.people.warnings, *people.missing_features()]
    found += [
        f"{row['score']} tells treated people from control (AUC {row['arm_auc']:.3f}, p {row['arm_p']:.3g}): it was made with the arm "
        "that they were given, or arms were not given at random; its ranking numbers then mean nothing"
        for row in tables["sources"].to_dicts()
        if row["arm_p"] is not None and row["arm_p"] < LEAKS
    ]
    found += [
        f"{row['score']} was fitted on {row['seen']} of these people: its numbers flatter it"
        for row in tables["seen"].to_dicts()
        if row["p"] is not None and row["p"] < LEAKS and row["share"] > row["repeated"]
    ]
    return found
