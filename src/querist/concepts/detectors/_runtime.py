"""A monitor at the bottleneck: alarms on rows that clean data never looked like, at a false-alarm rate fixed beforehand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from torch import nn

from querist.concepts.data import ConceptData, same_schema
from querist.concepts.detectors._conjunctions import Conjunctions, absent_conjunctions, literals
from querist.concepts.detectors._detector import Detector, Findings
from querist.concepts.detectors._entropy import Perturbation
from querist.errors import BadOption, BadValues, NonFinite, ShapeMismatch, TooFewRows
from querist.statistics import stream, wilson
from querist.statistics.arrays import as_array

if TYPE_CHECKING:
    import polars as pl

__all__ = ["RuntimeMonitor"]

Rule = Literal["conjunction", "entropy", "both"]
SHOWN = 20


class RuntimeMonitor(Detector):
    """rule "conjunction": a row alarms where it holds up to `most` values that never met in clean rows, though so many rows were
    expected to hold them that few clean rows do the like (`absent_conjunctions`). A trigger whose count in clean rows is 0 is such
    a conjunction. rule "entropy": a row alarms where its prediction hardly varies when all but a few concepts are replaced
    (`Perturbation`; suspects, keep and copies go to it); it needs a model. "both" gives each half the false alarms.

    Clean rows are the reference, or without one the table itself, which is then taken on trust. Absence is counted on a share 1 −
    `held_out` of them, and the threshold is set on the others, which the count has not seen: at most `false_alarms` of them alarm.
    Where scores are tied, or few rows hold any absent conjunction (of one-hot groups in a large table none may), far fewer do;
    `expected` is the share by rule, and `reason` says where it is less than half of what was allowed.

    After `fit`, `update(batch)` returns the alarms of a batch of rows and forgets the rows: memory does not grow. `status` counts.
    """

    method = "runtime"

    def __init__(
        self,
        rule: Rule = "conjunction",
        *,
        false_alarms: float = 0.01,
        most: int = 3,
        held_out: float = 0.5,
        suspects: Sequence[int] | None = None,
        keep: int = 5,
        copies: int = 32,
        seed: int = 0,
    ):
        if rule not in ("conjunction", "entropy", "both"):
            raise BadOption("No such rule", value=rule, allowed="conjunction, entropy, both")
        if not 0 < false_alarms < 1 or not 0 < held_out < 1:
            raise BadOption(
                "Shares lie outside their range",
                value=f"false_alarms {false_alarms}, held_out {held_out}",
                allowed="0 to 1",
            )
        self.rule: Rule = rule
        self.false_alarms, self.most, self.held_out, self.seed = false_alarms, most, held_out, seed
        self.perturbing: dict[str, Any] = {"suspects": suspects, "keep": keep, "copies": copies}
        self.thresholds: dict[str, float] = {}
        self.expected: dict[str, float] = {}
        self.conjunctions: Conjunctions | None = None
        self.seen = 0
        self.alarms: dict[str, int] = {}
        self._scorers: dict[str, Callable[[np.ndarray], np.ndarray]] = {}
        self._clean: ConceptData | None = None

    def fit(
        self,
        data: ConceptData,
        model: nn.Module | None = None,
        reference: ConceptData | None = None,
        *,
        unseen: ConceptData | None = None,
    ) -> RuntimeMonitor:
        """Raises BadOption for the entropy rule without a model, TooFewRows for too few rows to have a false alarm, SchemaMismatch.

        unseen: further clean rows, which the model has not learnt from: the threshold is set on them, in place of a share of the
        others. On rows that it was trained on a model is surer than on those to come.
        """
        for other in (reference, unseen):
            if other is not None:
                same_schema(data, other)
        clean = data if reference is None else reference
        if unseen is None:
            order = stream(self.seed, "runtime monitor").permutation(clean.n)
            held = np.sort(order[: round(self.held_out * clean.n)])
            counted, reserved = clean.subset(np.sort(order[len(held) :])), clean.subset(held)
        else:
            counted, reserved = clean, unseen
        rules: tuple[str, ...] = ("conjunction", "entropy") if self.rule == "both" else (self.rule,)
        share = self.false_alarms / len(rules)
        if reserved.n * share < 1 or counted.n < 2:
            raise TooFewRows(
                f"A false-alarm rate of {share:g} cannot be set on so few held-out rows",
                value=reserved.n,
                allowed=f"{int(np.ceil(1 / share))} or more",
                mend="Give more clean rows, or allow more false alarms",
            )
        self.thresholds, self.seen, self.conjunctions = {}, 0, None
        self.alarms = {str(name): 0 for name in rules}
        self._scorers = {}
        reserve = reserved.concepts
        scores: dict[str, np.ndarray] = {}
        hits: dict[str, np.ndarray] = {}
        if "conjunction" in rules:
            absent = absent_conjunctions(literals(counted.concepts, clean.space), most=self.most)
            score = _surprise(absent, reserve, clean, stop=share)
            self.thresholds["conjunction"] = _threshold(score, share)
            self.conjunctions = absent.above(self.thresholds["conjunction"])
            self._scorers["conjunction"] = lambda rows: _surprise(self._alarming, rows, clean)
            hits["conjunction"] = score > self.thresholds["conjunction"]
            scores["conjunction"] = _surprise(absent, data.concepts, data)
        if "entropy" in rules:
            if model is None:
                raise BadOption("The entropy rule needs a model", value="model=None", allowed="a head, or a CBM")
            moved = Perturbation(model, counted, seed=self.seed, **self.perturbing)
            self._scorers["entropy"] = lambda rows: -moved.entropy(rows)
            score = -moved.entropy(reserve)
            self.thresholds["entropy"] = _threshold(score, share)
            hits["entropy"] = score > self.thresholds["entropy"]
            scores["entropy"] = -moved.entropy(data.concepts)
        self._clean = reserved.subset([0])
        flags = np.any([scores[rule] > self.thresholds[rule] for rule in rules], axis=0)
        self.expected = {rule: float(hit.mean()) for rule, hit in hits.items()}
        self.expected["any"] = float(np.any(list(hits.values()), axis=0).mean())
        self._found = self._findings(data, scores, flags, trusted=reference is not None)
        return self

    def update(self, batch: Any) -> Bool[np.ndarray, "m"]:
        """Alarms of a batch: concepts [m k] in the space of `fit`, a `ConceptData`, or a table (Arrow, polars, dict) with their columns.

        Raises BadValues for values outside the declared range, NonFinite, ShapeMismatch; then nothing is counted.
        """
        cells = self._cells(batch)
        alarms = np.zeros(len(cells), dtype=bool)
        hits = (
            {rule: score(cells) > self.thresholds[rule] for rule, score in self._scorers.items()} if len(cells) else {}
        )
        for rule, hit in hits.items():
            self.alarms[rule] += int(hit.sum())
            alarms |= hit
        self.seen += len(cells)
        self.alarms["any"] = self.alarms.get("any", 0) + int(alarms.sum())
        return alarms

    @property
    def status(self) -> pl.DataFrame:
        """rule, seen, alarms, rate, low, high (95 % Wilson), nominal, expected: of the rows given to `update`; rates null before any."""
        import polars as pl

        rows = []
        for rule in (*self._scorers, "any"):
            count = self.alarms.get(rule, 0)
            of = wilson(count, self.seen) if self.seen else None
            nominal = self.false_alarms if rule == "any" else self.false_alarms / max(len(self._scorers), 1)
            rates = (of.estimate, of.low, of.high) if of else (None,) * 3
            rows.append((rule, self.seen, count, *rates, nominal, self.expected[rule]))
        names = ("rule", "seen", "alarms", "rate", "low", "high", "nominal", "expected")
        kinds = (pl.String, pl.Int64, pl.Int64, *[pl.Float64] * 5)
        return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")

    @property
    def _alarming(self) -> Conjunctions:
        assert self.conjunctions is not None
        return self.conjunctions

    def _cells(self, batch: Any) -> Float[np.ndarray, "m k"]:
        like = self._clean
        if like is None:
            raise BadOption("RuntimeMonitor has not been fitted", value="no clean rows", mend="Call fit(data) first")
        if isinstance(batch, ConceptData):
            same_schema(batch, like)
            batch = batch.concepts
        named = getattr(batch, "column_names", None) or (
            list(batch) if isinstance(batch, dict) else getattr(batch, "columns", None)
        )
        if named is not None:
            missing = [name for name in like.concept_names if name not in list(named)]
            if missing:
                raise ShapeMismatch(
                    "The batch lacks concepts", value=", ".join(missing[:8]), allowed="a column per concept"
                )
            batch = np.stack([np.asarray(batch[name], dtype=float) for name in like.concept_names], axis=1)
        cells = np.asarray(as_array(batch), dtype=float)
        if cells.ndim != 2 or cells.shape[1] != like.k:
            raise ShapeMismatch("A batch is rows of concepts", value=cells.shape, allowed=f"[m {like.k}]")
        if np.isinf(cells).any():
            raise NonFinite("A concept is infinite", value=int(np.isinf(cells).sum()), allowed="numbers, NaN = unknown")
        outside = (cells < 0) | (cells > 1)
        if like.space != "logit" and outside.any():
            raise BadValues(
                "A batch lies outside [0, 1]: this looks like logits",
                value=float(cells[outside][0]),
                allowed=f"0 to 1 in space {like.space}",
                mend="Give what the clean rows hold, or fit with space='logit'",
            )
        return cells

    def _findings(
        self, data: ConceptData, scores: dict[str, np.ndarray], flags: np.ndarray, *, trusted: bool
    ) -> Findings:
        import polars as pl

        conjunctions, top = self.conjunctions, None
        rows: list[tuple[Any, ...]] = []
        if conjunctions is not None:
            first = conjunctions.first(literals(data.concepts, data.space))
            count = np.bincount(first[first >= 0], minlength=len(conjunctions))
            for place in np.argsort(-count, kind="stable")[:SHOWN]:
                if count[place]:
                    pattern = conjunctions.pattern(int(place))
                    top = top or pattern
                    rows.append(
                        ("conjunction", pattern.to_json(), float(conjunctions.expected[place]), int(count[place]))
                    )
        if "entropy" in scores:
            rows.append(("entropy", None, None, int((scores["entropy"] > self.thresholds["entropy"]).sum())))
        table = pl.DataFrame(
            rows,
            schema={"rule": pl.String, "pattern": pl.String, "expected": pl.Float64, "alarms": pl.Int64},
            orient="row",
        )
        excess = [scores[rule] - self.thresholds[rule] for rule in scores]
        return Findings(
            data,
            excess[0] if len(excess) == 1 else np.max([_ranked(e) for e in excess], axis=0),
            flags,
            (),
            () if top is None else tuple(data.concept_names[i] for i in top.index),
            table,
            top,
            self._said(trusted),
        )

    def _said(self, trusted: bool) -> str | None:
        said = [] if trusted else ["no reference: the table's own rows were taken for clean"]
        share = self.false_alarms / len(self._scorers)
        said += [
            f"{rule}: {self.expected[rule]:.2g} of clean rows alarm where {share:.2g} may, for scores are tied or few hold anything absent"
            for rule in self._scorers
            if self.expected[rule] < share / 2
        ]
        return "; ".join(said) or None


def _surprise(
    absent: Conjunctions, rows: np.ndarray, like: ConceptData, *, stop: float = 1.0
) -> Float[np.ndarray, "n"]:
    """Expected rows of the most surprising conjunction of each row, 0 without one."""
    first = absent.first(literals(rows, like.space), stop=stop)
    return np.where(first >= 0, absent.expected[first] if len(absent) else 0.0, 0.0)


def _threshold(scores: Float[np.ndarray, "h"], share: float) -> float:
    """The held-out score that a new clean row exceeds with chance `share` at most: (j + 1)/(h + 1) where j of them exceed it."""
    return float(np.sort(scores)[::-1][max(int(np.floor(share * (len(scores) + 1) + 1e-9)) - 1, 0)])


def _ranked(values: np.ndarray) -> np.ndarray:
    """Average ranks in 0 … 1: what puts two rules on one scale."""
    from scipy.stats import rankdata

    return rankdata(values) / len(values)
