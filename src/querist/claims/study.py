"""The study of a room's claims: every claim's pieces as units, each done once, then one rule after another."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from querist.claims.claim import Claim, Family, Judgement, Piece, Size, numbers_table
from querist.claims.configs import ClaimsConfig
from querist.claims.ledger import LEDGER, PIECES, LedgerRow, counts
from querist.claims.present import lay_out
from querist.errors import InvariantBroken, SourceNotFound, UnknownName, near
from querist.results.figure import Figure
from querist.results.question import Question
from querist.results.table import TableSpec
from querist.runs.study import Answer, Study, Unit

__all__ = ["ClaimsStudy", "questions_of", "stages_of", "tables_of"]

FIRST, LATER = "work", "later"


def tables_of(claims: Iterable[Claim]) -> tuple[TableSpec, ...]:
    """Every table of a study of these claims: the ledger, the numbers of each claim, the pieces, what families measure."""
    claims = tuple(claims)
    families = _families(claims).values()
    specs = (LEDGER, *map(numbers_table, claims), PIECES, *(spec for family in families for spec in family.tables))
    names = [spec.name for spec in specs]
    if len(set(names)) != len(names):
        raise InvariantBroken(f"two tables have one name: {', '.join(n for n in names if names.count(n) > 1)}")
    return specs


def questions_of(claims: Iterable[Claim]) -> tuple[Question, ...]:
    """One question per claim."""
    return tuple(claim.question for claim in claims)


def stages_of(claims: Iterable[Claim]) -> tuple[str, ...]:
    """One stage, or two where a claim has later work."""
    return (FIRST, LATER) if any(claim.later for claim in claims) else (FIRST,)


def _families(claims: Iterable[Claim]) -> dict[str, Family]:
    families: dict[str, Family] = {}
    for claim in claims:
        if families.setdefault(claim.family.name, claim.family) is not claim.family:
            raise InvariantBroken(f"two families are called {claim.family.name}")
    return families


class ClaimsStudy(Study[ClaimsConfig]):
    """Base of the study of one room's claims. A room gives `room` and `claims`; stages, tables and questions are made of them."""

    command = "claims"
    claims: ClassVar[tuple[Claim, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Stages, tables and questions follow from the claims."""
        super().__init_subclass__(**kwargs)
        cls.stages = stages_of(cls.claims)
        cls.tables = tables_of(cls.claims)
        cls.questions = questions_of(cls.claims)

    def chosen(self, config: ClaimsConfig) -> tuple[Claim, ...]:
        """The claims that the config names, in its order, repeated as often as it says. Raises UnknownName."""
        known = {claim.id: claim for claim in self.claims}
        for name in config.claims:
            if name not in known:
                raise UnknownName("No such claim", value=name, allowed=near(name, known, 12))
        found = tuple(known[name] for name in dict.fromkeys(config.claims)) or self.claims
        return found if config.repeats is None else tuple(claim.repeated(config.repeats) for claim in found)

    def check(self, config: ClaimsConfig) -> None:
        """Refuse unknown claims, and a selection of which no claim's data are here."""
        chosen = self.chosen(config)
        reasons = [_missing(claim.sizes[config.size]) for claim in chosen]
        if reasons and all(reasons):
            raise SourceNotFound(
                "The data of the claim are not here" if len(chosen) == 1 else "The data of none of the claims are here",
                value=", ".join(claim.id for claim in chosen),
                mend=str(reasons[0]),
            )

    def inputs(self, config: ClaimsConfig) -> Mapping[str, str]:
        """Content hash of every registered data set that a claim reads."""
        from querist.files import fingerprint
        from querist.sources.datasets.registry import locate

        sizes = [claim.sizes[config.size] for claim in self.chosen(config)]
        names = sorted({name for size in sizes if _missing(size) is None for name in size.data})
        return {name: fingerprint(locate(name)) for name in names}

    def argv(self, config: ClaimsConfig) -> Sequence[str]:
        """What a person types: claims have one command for all rooms."""
        words = ["claims", *config.claims, "--size", config.size, "--seed", str(config.seed)]
        words += [] if config.repeats is None else ["--repeats", str(config.repeats)]
        return words if config.device == "auto" else [*words, "--device", config.device]

    def units(self, config: ClaimsConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> Sequence[Unit]:
        """The pieces of all chosen claims, those that several name once."""
        units: dict[str, Unit] = {}
        for claim in self.chosen(config):
            for piece in self._pieces(claim, config, stage, done):
                payload = {"family": claim.family.name, "piece": dict(piece.payload)}
                unit = Unit(piece.key, payload, piece.cost, piece.threads)
                if units.setdefault(piece.key, unit).payload != payload:
                    raise InvariantBroken(f"two pieces of different content are called {piece.key}")
        return list(units.values())

    def work(self, config: ClaimsConfig, unit: Unit, folder: Path) -> Mapping[str, Any]:
        """One piece, by its family."""
        family = _families(self.claims)[unit.payload["family"]]
        begun = time.perf_counter()
        found = family.work(unit.payload["piece"], config.seed, config.device, folder)
        specs = {spec.name: spec for spec in family.tables}
        rows = {name: _of_piece(specs, name, rows, unit.key) for name, rows in found.items()}
        seconds = time.perf_counter() - begun
        return {"pieces": [{"piece": unit.key, "family": family.name, "seconds": seconds}], **rows}

    def finish(self, config: ClaimsConfig, tables: Mapping[str, pl.DataFrame]) -> Answer:
        """Judge every claim by its own rule on its own rows."""
        tables = {spec.name: tables.get(spec.name, spec.frame([])) for spec in self.tables}
        rows: list[LedgerRow] = []
        numbers: dict[str, list[dict[str, Any]]] = {}
        drawn: dict[str, list[Figure]] = {}
        passed: list[dict[str, str]] = []
        keys: dict[str, list[str]] = {}
        chosen = self.chosen(config)
        for claim in chosen:
            size = claim.sizes[config.size]
            reason = _missing(size)
            keys[claim.id] = [] if reason else self._keys(claim, config, tables)
            own = {name: _only(frame, keys[claim.id]) for name, frame in tables.items() if "piece" in frame.columns}
            if reason is not None:
                passed.append({"what": claim.id, "reason": reason})
                judgement = Judgement("cannot say", None, None, None, None, f"Its data are not here. {reason}.")
            else:
                judgement = claim.judge(own, size)
                drawn[claim.id] = list(claim.draw(own, size)) if claim.draw else []
            rows.append(LedgerRow.of(claim, judgement, config.size, sum(own["pieces"]["seconds"].to_list())))
            numbers[claim.name] = [_number(one) for one in judgement.numbers]
        users = pl.Series([[c for c, mine in keys.items() if key in mine] for key in tables["pieces"]["piece"]])
        ledger = [row.row(claim) for row, claim in zip(rows, chosen, strict=True)]
        answer = {name: frame for name, frame in tables.items() if frame.height}
        answer |= {name: self._spec(name).frame(found) for name, found in numbers.items()}
        answer["pieces"] = tables["pieces"].with_columns(claims=users.cast(pl.List(pl.String())))
        answer["ledger"] = LEDGER.frame(ledger)
        answer = {spec.name: answer[spec.name] for spec in self.tables if spec.name in answer}
        return Answer(
            tables=answer,
            findings=[row.finding(claim) for row, claim in zip(rows, chosen, strict=True)],
            figures=[figure for figures in drawn.values() for figure in figures],
            layout=lay_out(self.room, config.size, chosen, rows, drawn, list(answer), self.tables),
            summary={
                "size": config.size,
                "claims": [claim.id for claim in chosen],
                "counts": counts(ledger),
                "ledger": ledger,
            },
            passed_over=passed,
        )

    def _spec(self, name: str) -> TableSpec:
        return next(spec for spec in self.tables if spec.name == name)

    def _pieces(self, claim: Claim, config: ClaimsConfig, stage: str, done: Mapping[str, pl.DataFrame]) -> list[Piece]:
        """A claim's pieces of one stage; none where its data are not here."""
        size = claim.sizes[config.size]
        if _missing(size) is not None:
            return []
        first = list(claim.pieces(size))
        if stage == FIRST or claim.later is None:
            return first if stage == FIRST else []
        keys = [piece.key for piece in first]
        whole = {spec.name: done.get(spec.name, spec.frame([])) for spec in claim.family.tables}
        return list(claim.later(size, {name: _only(frame, keys) for name, frame in whole.items()}))

    def _keys(self, claim: Claim, config: ClaimsConfig, tables: Mapping[str, pl.DataFrame]) -> list[str]:
        return [piece.key for stage in self.stages for piece in self._pieces(claim, config, stage, tables)]


def _missing(size: Size) -> str | None:
    """Why a claim cannot be tested here: how to get the first data set that is not here."""
    from querist.sources.datasets.registry import locate

    for name in size.data:
        try:
            locate(name)
        except SourceNotFound as error:
            return str(error).rstrip(".")
    return None


def _only(frame: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    return frame.filter(pl.col("piece").is_in(list(keys)))


def _of_piece(specs: Mapping[str, TableSpec], name: str, rows: Any, key: str) -> pl.DataFrame:
    if name not in specs:
        raise InvariantBroken(f"piece {key} gave an undeclared table {name}")
    if isinstance(rows, pl.DataFrame):
        return specs[name].frame(rows.with_columns(piece=pl.lit(key)))
    return specs[name].frame([{**row, "piece": key} for row in rows])


def _number(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("what", "value", "low", "high", "null", "n")}
