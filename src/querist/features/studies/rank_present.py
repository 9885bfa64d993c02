"""What a ranking shows: its report's sections, the summary's own keys, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from querist.features.configs import RankConfig
from querist.features.questions import RANK_QUESTIONS, WARNING
from querist.features.studies.captures import capture_block, few_examples
from querist.features.tables import RANK_TABLES
from querist.results.layout import Layout, Section

__all__ = ["lay_out", "summarise", "warn"]

Rows = list[dict[str, Any]]


def lay_out(config: RankConfig, tables: Mapping[str, pl.DataFrame], drawn: Sequence[Any]) -> Layout:
    """Warning, scores beside baselines, agreement with the truth, captures."""
    n = int(tables["captures"]["n"].min())  # type: ignore[arg-type]
    names = {figure.name for figure in drawn}
    sections = [
        Section(
            "Scores beside plain baselines",
            words=(
                f"Scores are those of {n} labelled examples, layer by layer, after iso normalisation on the target's own rows; each "
                f"stands beside the same score of {config.permutations} permuted labellings. Baselines train nothing but the probe "
                "(5-fold logistic regression, scaled inside each fold). The distance w between source and target has a value and a "
                "null and no rank: raw distances rank no networks.",
                "On published leaderboards of pretrained networks, plain heuristics beat transferability scores (arXiv 2510.06448): "
                "a score that does not beat depth, size and the probe has told nothing.",
            ),
            findings=(("*", "features.best-start"),),
            figures=tuple(name for name in ("ranks", "scores") if name in names),
            tables=("scores", "baselines", "models"),
        ),
        Section(
            "Agreement with what training reached",
            words=(
                (
                    "Weighted Kendall τ over networks and layers, mean over cells (target, seed), with a bootstrap over cells; layers "
                    "are no replicates. A constant score has τ 0."
                    if config.truth
                    else "There is no truth: give a table of accuracies or a run of `features freeze` with --truth."
                ),
            ),
            findings=(("*", "features.score-useful"),),
            figures=tuple(name for name in ("agreement",) if name in names),
            tables=("agreement", "truth") if config.truth else (),
        ),
        Section(
            "Captures",
            findings=(("*", "features.capture-health"), ("*", "features.overlapping-ids")),
            tables=("layers", "captures", "passed_over"),
            open=False,
        ),
    ]
    return Layout("Which network and layer to start from?", WARNING, tuple(sections), RANK_TABLES, RANK_QUESTIONS)


def summarise(config: RankConfig, tables: Mapping[str, pl.DataFrame], scores: Rows, baselines: Rows) -> dict[str, Any]:
    """The summary's own keys."""
    captures = tables["captures"].sort(pl.col("data") != "target", maintain_order=True)
    keys = ("model", "layer", "score", "value", "rank", "p")
    best: dict[str, dict[str, str]] = {}
    for row in scores:
        if row["rank"] == 1:
            best.setdefault(row["score"], {"model": row["model"], "layer": row["layer"]})
    return {
        "warning": WARNING,
        "capture": capture_block(captures, reduction=config.reduce),
        "target": config.target,
        "ranking": [{key: row[key] for key in keys} for row in scores],
        "baselines": [{key: row.get(key) for key in keys} for row in baselines],
        "best": best,
        "agreement": tables["agreement"].drop("cells", "candidates").to_dicts(),
    }


def warn(config: RankConfig, tables: Mapping[str, pl.DataFrame]) -> list[str]:
    """What a reader must know before the numbers."""
    told = few_examples(int(tables["captures"]["n"].min()))  # type: ignore[arg-type]
    if config.source and config.projections < 30:
        told.append(f"{config.projections} directions are few: the distance w has a large Monte Carlo error.")
    truth = tables["truth"].filter("used")
    named = truth["target"].unique().to_list()
    if len(named) == 1 and named[0] not in ("", config.target):
        told.append(f"The truth is of {named[0]}, and the ranking of {config.target}: they are taken for one target.")
    return told
