"""The core of the claims: selection, the study, the ledger, the command; on toy claims."""

from __future__ import annotations

import json

import polars as pl
import pytest
from tests.claims.toys import CLAIMS
from tests.claims.toys.study import RoomClaims
from tests.harness import Bad, check_bad_input, check_study

from querist.claims import registry, run, select
from querist.claims.claim import Claim, Judgement, Number, Piece, Size
from querist.claims.configs import ClaimsConfig
from querist.claims.judging import side_of, verdict_of
from querist.claims.ledger import LEDGER, LedgerRow, compare, counts, told
from querist.cli import main
from querist.errors import BadOption, InvariantBroken, RunBusy, SourceNotFound, UnknownName
from querist.reports.result import Result
from querist.runs.carry import UnitsFailed
from querist.sources.datasets import registry as data

PRESENT = tuple(claim.id for claim in CLAIMS if claim.name != "absent")


@pytest.fixture(autouse=True)
def toys(monkeypatch):
    absent = data.DataSet("toy-absent", "Not here.", "none", 1, file="toys/absent.csv")
    monkeypatch.setattr(data, "DATA_SETS", {**data.DATA_SETS, "toy-absent": absent})
    monkeypatch.setattr(registry, "ROOMS", {"toys": "tests.claims.toys"})


@pytest.mark.browser
def test_claims_are_a_study(tmp_path, chromium):
    result = check_study(RoomClaims, ClaimsConfig(claims=PRESENT), tmp_path, chromium=chromium)
    ledger = {row["id"]: row["verdict"] for row in result.ledger.to_dicts()}
    assert ledger == {
        "toys.above-minus-one": "holds",
        "toys.above-one": "fails",
        "toys.above-zero": "cannot say",
        "toys.summed": "holds",
    }
    assert {f.question: f.verdict for f in result.findings} == {
        "toys.above-minus-one": "yes",
        "toys.above-one": "no",
        "toys.above-zero": "cannot say",
        "toys.summed": "yes",
    }
    assert result.summary["counts"] == {"holds": 2, "fails": 1, "cannot say": 1}
    assert [row["id"] for row in result.summary["ledger"]] == list(PRESENT)


def test_a_piece_that_several_claims_name_is_done_once():
    result = run("toys.above-one", "toys.above-minus-one", "toys.summed").results["toys"]
    assert result.pieces["piece"].to_list() == [f"sample/{i}" for i in range(4)] + [f"sum/{i}" for i in range(4)]
    assert result.pieces["claims"].to_list()[0] == ["toys.above-minus-one", "toys.above-one", "toys.summed"]
    assert result.pieces["claims"].to_list()[-1] == ["toys.summed"]
    assert list(result.tables) == ["ledger", "above-minus-one", "above-one", "summed", "pieces", "samples", "sums"]
    seconds = dict(result.ledger.select("id", "seconds").iter_rows())
    assert seconds["toys.summed"] == pytest.approx(result.pieces["seconds"].sum())


def test_each_claim_sees_the_rows_of_its_own_pieces():
    seen = []

    def judge(tables, size):
        seen.append(sorted(tables["samples"]["piece"].unique()))
        return Judgement("holds", 1.0, None, None, None, "Seen.")

    one = CLAIMS[0]

    class Narrow(RoomClaims):
        claims = (
            CLAIMS[1],
            Claim(**{**_fields(one), "judge": judge, "draw": lambda t, s: (), "pieces": lambda size: list(one.pieces(size))[:2]}),
        )  # fmt: skip

    study, config = Narrow(), ClaimsConfig(claims=("toys.above-one", "toys.above-minus-one"))
    frames = [study.work(config, unit, None) for unit in study.units(config, "work", {})]
    assert len(frames) == 4
    study.finish(config, {n: pl.concat([_frame(study, n, f[n]) for f in frames]) for n in ("pieces", "samples")})
    assert seen == [["sample/0", "sample/1"]]


def _fields(claim):
    return {name: getattr(claim, name) for name in Claim.__dataclass_fields__}


def _frame(study, name, rows):
    return next(spec for spec in study.tables if spec.name == name).frame(rows)


def test_pieces_that_share_a_key_must_be_the_same():
    class Quarrel(RoomClaims):
        claims = (CLAIMS[0], Claim(**{**_fields(CLAIMS[1]), "pieces": lambda size: [Piece("sample/0", {"other": 1})]}))

    with pytest.raises(InvariantBroken, match="sample/0"):
        Quarrel().units(ClaimsConfig(), "work", {})


def test_absent_data_cost_a_claim_its_row_and_are_told():
    result = run("toys.a*").results["toys"]
    row = result.ledger.filter(pl.col("id") == "toys.absent").to_dicts()[0]
    assert row["verdict"] == "cannot say"
    assert "toy-absent" in row["because"]
    assert [one["what"] for one in result.passed_over] == ["toys.absent"]
    with pytest.raises(SourceNotFound, match="toy-absent"):
        run("toys.absent")


def test_a_size_changes_seeds_and_numbers():
    result = run("toys.above-zero", size="full", seed=3).results["toys"]
    assert result.ledger["seeds"].to_list() == [8]
    assert result.samples.height == 800
    words = " ".join(result.layout.sections[1].words)
    assert "seeds 8; n 100; rates {0.1, 1}" in words


def test_repeats_stand_in_for_the_seeds_of_a_size():
    ledger = run("toys.above-zero", repeats=3)
    assert ledger.table["seeds"].to_list() == [3]
    result = ledger.results["toys"]
    assert result.samples["seed_index"].n_unique() == 3
    assert "seeds 3;" in " ".join(result.layout.sections[1].words)
    assert "--repeats 3" in " ".join(RoomClaims().argv(ClaimsConfig(repeats=3)))
    with pytest.raises(BadOption, match="repeats"):
        run("toys.above-zero", repeats=1)


def test_selection_by_id_and_glob_keeps_the_order_of_the_ledger():
    assert [claim.id for claim in select(["toys.s*", "toys.above-one"])["toys"]] == ["toys.above-one", "toys.summed"]
    assert len(select()["toys"]) == len(CLAIMS)
    with pytest.raises(UnknownName, match=r"toys\.above-one"):
        select(["toys.above-oen"])


def test_a_claim_is_declared_whole():
    fields = _fields(CLAIMS[0])
    for wrong in ({"id": "Toys.X"}, {"id": "nodot"}, {"source": "hearsay"}, {"sizes": {"small": Size(1)}}):
        with pytest.raises(InvariantBroken):
            Claim(**{**fields, **wrong})
    with pytest.raises(InvariantBroken, match="maybe"):
        LedgerRow.of(CLAIMS[0], Judgement("maybe", None, None, None, None, "."), "small", 0.0)  # type: ignore[arg-type]


def test_two_ledgers_side_by_side():
    now = LEDGER.frame([{"id": "a", "verdict": "holds", "estimate": 1.0}, {"id": "b", "verdict": "fails"}])
    before = LEDGER.frame([{"id": "a", "verdict": "fails", "estimate": 2.0}, {"id": "c", "verdict": "holds"}])
    rows = {row["id"]: row for row in compare(now, before).to_dicts()}
    assert rows["a"] == {
        "id": "a",
        "verdict": "holds",
        "verdict_before": "fails",
        "estimate": 1.0,
        "estimate_before": 2.0,
        "changed": True,
    }
    assert (rows["b"]["verdict_before"], rows["c"]["verdict"]) == (None, None)
    assert not compare(now, now)["changed"].any()


def test_counts_in_words():
    assert told(counts([{"verdict": "cannot say"}] * 2 + [{"verdict": "fails"}])) == "1 fails, 2 cannot be told"
    assert told(counts([])) == "no claim"


# ------------------------------------------------------------------------------------------------------------ command


def test_the_command_prints_the_ledger_and_writes_the_run(tmp_path, capfd):
    out = tmp_path / "run"
    assert main(["claims", "toys.above-one", "--out", str(out), "--quiet"]) == 0
    said = capfd.readouterr()
    assert said.err == ""
    assert "toys.above-one" in said.out
    assert "fails" in said.out
    result = Result.open(out)
    assert (result.room, result.command) == ("toys", "claims")
    page = (out / "report.html").read_text("utf-8")
    assert "querist claims toys.above-one --size small --seed 0" in page
    assert "Rule, fixed before the run" in page


def test_json_is_the_summary_alone(tmp_path, capfd):
    out = tmp_path / "run"
    assert main(["claims", "toys.above-*", "--out", str(out), "--json"]) == 0
    said = capfd.readouterr()
    summary = json.loads(said.out)
    assert summary == json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["schema"] == "querist.toys.claims/1"
    assert summary["ledger"][0]["verdict"] == "holds"
    assert "Report:" in said.err


def test_gates_on_verdicts_and_on_the_ledger(tmp_path):
    def gated(name, gate, out):
        return main(["claims", name, "--quiet", "--fail-if", gate, "--out", str(tmp_path / out)])

    assert gated("toys.above-minus-one", "above-minus-one.verdict == no", "a") == 0
    assert gated("toys.above-one", "counts.fails > 0", "b") == 3
    assert gated("toys.above-one", "above-one[small].estimate < .5", "c") == 3
    out = tmp_path / "d"
    argv = ["claims", "toys.above-one", "--fail-if", "above-oen.verdict == no", "--out", str(out)]
    check_bad_input([Bad(argv, 2, ["above-one"])])
    assert not out.exists()


def test_mistakes_are_one_message(tmp_path):
    out = tmp_path / "run"
    check_bad_input(
        [
            Bad(["claims", "toys.above-oen", "--out", str(out)], 2, ["toys.above-oen", "toys.above-one"]),
            Bad(["claims", "weights.*", "--out", str(out)], 2, ["weights.*", "--list"]),
            Bad(["claims", "toys.absent", "--out", str(out)], 2, ["toys.absent", "toy-absent"]),
            Bad(["claims", "--size", "huge"], 2, ["huge", "small"]),
            Bad(["claims", "--against", str(tmp_path), "--out", str(out)], 2, [str(tmp_path), "ledger"]),
        ]
    )
    assert not out.exists()


def test_the_list_says_what_would_be_tested(capfd):
    assert main(["claims", "--list", "--size", "full"]) == 0
    said = capfd.readouterr().out
    assert "toys.above-zero" in said
    assert "Rule: Holds where" in said
    assert "rates {0.1, 1}" in said


def test_a_failed_piece_ends_the_run_and_resume_goes_on(tmp_path, monkeypatch, capfd):
    out = tmp_path / "run"
    argv = ["claims", "toys.above-*", "--out", str(out), "--quiet"]
    monkeypatch.setenv("TOY_TROUBLE", "sample-2")
    assert main(argv) == 1
    assert "sample/2" in capfd.readouterr().err
    monkeypatch.delenv("TOY_TROUBLE")
    before = (out / "units.jsonl").read_bytes()
    assert main([*argv, "--resume"]) == 0
    assert (out / "units.jsonl").read_bytes().startswith(before)
    assert main([*argv, "--resume", "--seed", "1"]) == 2
    monkeypatch.setenv("TOY_TROUBLE", "sample-2")
    with pytest.raises(UnitsFailed):
        run("toys.above-one")


def test_an_earlier_ledger_stands_beside(tmp_path, capfd):
    assert main(["claims", "toys.above-one", "--out", str(tmp_path / "a"), "--quiet"]) == 0
    capfd.readouterr()
    argv = ["claims", "toys.above-*", "--against", str(tmp_path / "a"), "--out", str(tmp_path / "b")]
    assert main(argv) == 0
    said = capfd.readouterr().err
    assert "toys.above-zero: cannot say, before not tested" in said
    assert "toys.above-one:" not in said


@pytest.fixture
def two_rooms(monkeypatch, tmp_path):
    """A second room, made of the same claims under another name."""
    import sys
    import types

    package, module = types.ModuleType("second_room"), types.ModuleType("second_room.study")
    claims = tuple(Claim(**{**_fields(claim), "id": f"more.{claim.name}"}) for claim in CLAIMS[:2])
    package.CLAIMS = claims  # type: ignore[attr-defined]
    module.RoomClaims = type("RoomClaims", (RoomClaims,), {"room": "more", "claims": claims})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "second_room", package)
    monkeypatch.setitem(sys.modules, "second_room.study", module)
    monkeypatch.setattr(registry, "ROOMS", {"toys": "tests.claims.toys", "more": "second_room"})


def test_claims_of_two_rooms_are_two_runs_and_one_ledger(two_rooms, tmp_path, capfd):
    out = tmp_path / "both"
    argv = ["claims", "*.above-*one", "--out", str(out), "--engine", "serial"]
    assert main([*argv, "--json", "--quiet"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["schema"] == "querist.claims.claims/1"
    assert [row["id"] for row in summary["ledger"]] == [
        "toys.above-minus-one",
        "toys.above-one",
        "more.above-minus-one",
        "more.above-one",
    ]
    assert summary["counts"] == {"holds": 2, "fails": 2, "cannot say": 0}
    assert all((out / path).is_file() for path in summary["tables"].values())
    assert (out / "toys" / "report.html").is_file()
    assert "more/report.html" in (out / "report.html").read_text("utf-8")
    assert json.loads((out / "summary.json").read_text("utf-8")) == summary
    assert main([*argv, "--quiet"]) == 2
    assert main([*argv, "--quiet", "--resume"]) == 0
    assert main([*argv, "--quiet", "--resume", "--fail-if", "more.above-one.verdict == no"]) == 3
    capfd.readouterr()
    assert main(["claims", "--against", str(out), "--out", str(tmp_path / "again")]) == 0
    assert "toys.summed: holds, before not tested" in capfd.readouterr().err
    assert len(run("*.above-one").table) == 2
    with pytest.raises(RunBusy):
        run("*.above-one", out=out)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(BadOption, match="something else"):
        run("*.above-one", out=out, resume=True)


def test_a_ledger_shows_itself_and_compares():
    ledger = run("toys.above-one", "toys.above-zero")
    assert "toys.above-zero  cannot say" in repr(ledger).replace("   ", "  ") or "cannot say" in repr(ledger)
    assert "1 fails" in repr(ledger)
    assert not ledger.against(ledger)["changed"].any()
    assert ledger.folder is None


def test_numbers_become_a_table_of_the_claim():
    result = run("toys.above-one").results["toys"]
    row = result.tables["above-one"].to_dicts()[0]
    assert row["what"] == "mean"
    assert row["null"] == 1.0
    assert isinstance(Number("x", 1.0), Number)


@pytest.mark.parametrize(
    ("ends", "direction", "side"),
    [
        ((0.1, 0.2), "above", True),
        ((-0.2, -0.1), "above", False),
        ((-0.1, 0.1), "above", None),
        ((0.0, 0.1), "above", None),
        ((0.1, 0.2), "below", False),
        ((-0.2, -0.1), "below", True),
        ((-0.1, 0.1), "below", None),
        ((None, 0.1), "below", None),
        ((0.1, None), "above", None),
    ],
)
def test_an_interval_is_on_a_side_only_as_a_whole(ends, direction, side):
    assert side_of(*ends, 0.0, direction) is side


def test_sides_speak_together():
    assert verdict_of([True, True]) == "holds"
    assert verdict_of([True, None, False]) == "fails"
    assert verdict_of([True, None]) == verdict_of([]) == "cannot say"
