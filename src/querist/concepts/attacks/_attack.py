"""Attack success beside its three nulls: the rows as they are, the clean model, and rows that carry the trigger by nature."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool

from querist.concepts.attacks._subject import Subject
from querist.concepts.data import ConceptData
from querist.concepts.triggers import Trigger
from querist.errors import BadOption
from querist.statistics import stream, wilson

__all__ = ["AttackReport", "attack_report", "excess_interval"]

REPLICATES = 2000
ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class AttackReport:
    """Fractions of the `n` rows that are not of the target (and of the source classes, where given); None over no rows.

    `asr` predicted as the target after the trigger, `untriggered` before it, `clean_model_asr` by the unpoisoned model after it,
    `natural` carry the trigger already. `excess` = asr − max(untriggered, clean_model_asr), [`low`, `high`] its paired 95 %
    percentile interval over rows. Over all rows: `accuracy`, `clean_model_accuracy`, `accuracy_drop` = the clean model's − the
    model's with its paired interval, `accuracy_after` on triggered rows. `accuracy_source`: accuracy on the n rows. `reason` says why
    something is None. `protocol` names the rows, the space and the strength.
    """

    n: int
    asr: float | None
    untriggered: float | None
    clean_model_asr: float | None
    natural: float | None
    excess: float | None
    low: float | None
    high: float | None
    accuracy: float | None
    accuracy_after: float | None
    accuracy_source: float | None
    clean_model_accuracy: float | None
    accuracy_drop: float | None
    drop_low: float | None
    drop_high: float | None
    wrong_side_share: float | None
    reason: str | None
    protocol: str


def attack_report(
    model: Any,
    data: ConceptData,
    trigger: Trigger,
    target: Any,
    *,
    sources: Iterable[Any] | None = None,
    baseline: Any = None,
    strength: str = "quantile",
    scale: np.ndarray | None = None,
    seed: int = 0,
) -> AttackReport:
    """How often the trigger, set at the bottleneck, sends rows of other classes to the target.

    model, baseline: the model and the same architecture trained with the same seed on unpoisoned data. Each is a `CBM`, whose
    own concepts of the table's pictures are changed where it has a g; a bare network f, or a function, from concepts in the space
    of `data` to scores [n L] (a function may give class codes [n]); or a `Subject` on these rows, which remembers its answers.
    sources: only rows of these classes are counted. Without a baseline there is no clean-model rate and no excess. scale: as in
    `Trigger.apply`, needed in space logit with strength "quantile" (a CBM has its own). `natural` is of the table's concepts.

    Raises UnknownName for no such class, BadOption for a target among the sources and for a g without pictures, ShapeMismatch
    for predictions of another length. Rates over no rows are None, with a reason.
    """
    code = data.code(target)
    counted = data.codes != code
    wanted = None
    if sources is not None:
        wanted = [data.code(source) for source in sources]
        if code in wanted:
            raise BadOption("The target cannot be a source", value=str(target), allowed="other classes")
        counted &= np.isin(data.codes, wanted)
    subject = _subject(model, data, strength, scale)
    before, after = subject.before, subject.after(trigger)
    clean_before = clean_after = None
    if baseline is not None:
        clean = _subject(baseline, data, strength, scale)
        clean_before, clean_after = clean.before, clean.after(trigger)
    n = int(counted.sum())
    rates: dict[str, float | None] = dict.fromkeys(
        ("asr", "untriggered", "clean_model_asr", "natural", "excess", "low", "high", "accuracy_source")
    )
    reasons = [] if n else ["no row of another class" + (" among the sources" if wanted is not None else "")]
    if n:
        rates["asr"] = float((after[counted] == code).mean())
        rates["untriggered"] = float((before[counted] == code).mean())
        rates["natural"] = float(trigger.matches(data.concepts[counted], space=data.space).mean())
        rates["accuracy_source"] = float((before[counted] == data.codes[counted]).mean())
    drop: tuple[float | None, float | None, float | None] = (None, None, None)
    if clean_before is None or clean_after is None:
        reasons.append("no clean model, so no excess and no drop of accuracy")
    else:
        if n:
            rates["clean_model_asr"] = float((clean_after[counted] == code).mean())
            hits = [after[counted] == code, before[counted] == code, clean_after[counted] == code]
            rates["excess"], rates["low"], rates["high"] = excess_interval(*hits, seed=seed)
        drop = _paired(clean_before == data.codes, before == data.codes, seed)
    return AttackReport(
        n=n,
        **rates,
        accuracy=float((before == data.codes).mean()),
        accuracy_after=float((after == data.codes).mean()),
        clean_model_accuracy=None if clean_before is None else float((clean_before == data.codes).mean()),
        accuracy_drop=drop[0],
        drop_low=drop[1],
        drop_high=drop[2],
        wrong_side_share=subject.wrong_side_share(trigger),
        reason="; ".join(reasons) or None,
        protocol=_protocol(data, code, wanted, n, subject),
    )


def excess_interval(
    asr: Bool[np.ndarray, "n"],
    untriggered: Bool[np.ndarray, "n"],
    clean_model: Bool[np.ndarray, "n"],
    *,
    level: float = 0.95,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> tuple[float, float, float]:
    """mean(asr) − max(mean(untriggered), mean(clean_model)) and its percentile interval over rows resampled together.

    A row is one of eight patterns, so a resample is one multinomial draw of the patterns' counts: the same law as drawing rows.
    The percentiles are corrected for bias: the larger of two rates that are about alike is too large in the sample and again in
    its resamples, and plain percentiles then lie too low (they cover .91 to .93 at .95). Where every row is a hit, or none is, no
    resample differs: Wilson's limit of the success rate takes the place of that end.

    Source: Efron (1987), section 2, for the correction.
    """
    from scipy.special import ndtr, ndtri

    pattern = 4 * asr.astype(int) + 2 * untriggered + clean_model
    n = len(pattern)
    share = np.bincount(pattern, minlength=8) / n
    drawn = stream(seed, "excess bootstrap").multinomial(n, share, size=replicates) / n

    def value(of: np.ndarray) -> np.ndarray:
        rates = [of[..., [p for p in range(8) if p & bit]].sum(axis=-1) for bit in (4, 2, 1)]
        return rates[0] - np.maximum(rates[1], rates[2])

    found, values = float(value(share)), value(drawn)
    apart = values - found
    below = (apart < -ROUNDING).mean() + 0.5 * (np.abs(apart) <= ROUNDING).mean()
    shift = 2 * ndtri(np.clip(below, 1 / replicates, 1 - 1 / replicates))
    ends = ndtr(shift + ndtri([(1 - level) / 2, (1 + level) / 2]))
    low, high = (float(end) for end in np.quantile(values, ends))
    hits = int(asr.sum())
    if hits in (0, n):
        limit, null = wilson(hits, n, level), max(untriggered.mean(), clean_model.mean())
        if limit.low is not None and limit.high is not None:
            low, high = min(low, limit.low - float(null)), max(high, limit.high - float(null))
    return found, min(low, found), max(high, found)


def _subject(model: Any, data: ConceptData, strength: str, scale: np.ndarray | None) -> Subject:
    return model if isinstance(model, Subject) else Subject(model, data, strength=strength, scale=scale)


def _paired(first: np.ndarray, second: np.ndarray, seed: int) -> tuple[float, float, float]:
    """mean(first) − mean(second) with its percentile interval, rows together."""
    zero = np.zeros(len(first), dtype=bool)
    return excess_interval(first, second, zero, seed=seed) if first.any() or second.any() else (0.0, 0.0, 0.0)


def _protocol(data: ConceptData, code: int, wanted: list[int] | None, n: int, subject: Subject) -> str:
    rows = (
        "every class but the target" if wanted is None else "classes " + ", ".join(str(data.classes[c]) for c in wanted)
    )
    space = f"space {subject.space}" + (f", strength {subject.strength}" if subject.space == "logit" else "")
    return f"target {data.classes[code]}; {n} rows of {rows}; trigger set at the bottleneck; {space}"
