"""A document as rich as a real one: spectra, a wide table, every verdict, nulls, names that try to break out of the page."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from querist.reports.document import Document
from querist.results import charts
from querist.results.charts import Axes, Mark, Series
from querist.results.figure import Figure
from querist.results.finding import Finding
from querist.results.layout import Layout, Section
from querist.results.question import Question
from querist.results.table import Column, TableSpec

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
LAYERS = 60

QUESTIONS = (
    Question(
        "weights.trained",
        "Did training leave anything in this matrix?",
        "distance",
        "the distance between two shuffled copies of the same matrix",
        "Yes where the spectrum is farther from its shuffled copies than any two copies are from each other.",
        "yes",
    ),
    Question(
        "weights.spikes",
        "Are there directions that noise of this size could not make?",
        "count",
        "0; the edge is the largest of three",
        "Yes where λ_max beats both resampling nulls by rank and the adjusted p is at most .05.",
    ),
    Question(
        "weights.heavy-tail",
        "Is the tail of the spectrum a power law?",
        "exponent",
        "the same fit on the Marchenko–Pastur law",
        "Yes where the bulk is rejected and a power law on at least 50 eigenvalues beats the exponential.",
    ),
    Question(
        "weights.damaged", "Does it hold NaN or infinite entries?", "entries", "0", "Yes from one entry on.", "no"
    ),
)

LAYERS_SPEC = TableSpec(
    "layers",
    "One row per matrix. Eigenvalues λ are squared singular values, unnormalised.",
    (
        Column("layer_id", "str", "Tensor name, with its part where a tensor holds several matrices."),
        Column("shape", "list[int]", "Shape of the tensor in the source."),
        Column("tied", "bool", "Whether another name shares it."),
        Column("n_spikes", "int", "Eigenvalues beyond every null.", "count"),
        Column("alpha", "float", "Power-law density exponent of the tail."),
        Column("lambda_plus", "float", "Upper edge of the fitted bulk.", "λ"),
        Column("empty", "float", "A statistic that nobody asked for."),
        Column("parameters", "int", "Entries of the tensor; some exceed what JavaScript counts exactly."),
        *(Column(f"statistic_{i:02d}", "float", f"Statistic number {i} of the spectrum <&>.") for i in range(32)),
    ),
    ("layer_id",),
)
SPECTRA_SPEC = TableSpec(
    "spectra",
    "Every eigenvalue of every matrix.",
    (
        Column("layer_id", "str", "Which matrix."),
        Column("index", "int", "Position in ascending order."),
        Column("eigenvalue", "float", "Squared singular value.", "λ"),
    ),
)


def names(count: int = LAYERS) -> list[str]:
    parts = (
        "attention.self.query",
        "attention.self.key",
        "attention.output.dense",
        "intermediate.dense",
        "output.dense",
    )
    made = [f"encoder.layer.{i // len(parts)}.{parts[i % len(parts)]}.weight" for i in range(count)]
    return [HOSTILE, "embeddings[word].weight", *made[2:]]


def frames(count: int = LAYERS, spectrum: int = 120) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = []
    for i, name in enumerate(names(count)):
        row: dict[str, Any] = {
            "layer_id": name,
            "shape": [384, 384 * (1 + i % 4)],
            "tied": i % 7 == 0,
            "n_spikes": int(rng.poisson(3)),
            "alpha": None if i % 9 == 4 else float(2 + rng.gamma(3, 0.5)),
            "lambda_plus": float(10 ** rng.normal(1, 2)),
            "parameters": 9_007_199_254_740_993 if i == 2 else 384 * 384 * (1 + i % 4),
        }
        row |= {f"statistic_{k:02d}": float(10 ** rng.normal(0, 3) * rng.choice([-1, 1])) for k in range(32)}
        rows.append(row)
    spectra = [
        {"layer_id": name, "index": k, "eigenvalue": float(value)}
        for name in names(count)
        for k, value in enumerate(np.sort(rng.gamma(2, 2, size=spectrum)))
    ]
    return {"layers": LAYERS_SPEC.frame(rows), "spectra": SPECTRA_SPEC.frame(spectra)}


def findings(count: int = LAYERS) -> list[Finding]:
    rng = np.random.default_rng(5)
    made = []
    for i, name in enumerate(names(count)):
        d, alpha, spikes = float(rng.gamma(2, 0.04)), float(2 + rng.gamma(3, 0.5)), int(rng.poisson(2))
        made.append(
            Finding(
                name, "weights.trained", d, "distance", d * 0.9, d * 1.1, 0.04, None, "yes" if d > 0.05 else "no",
                f"The spectrum is {d:.3f} from its shuffled copies; two copies are at most 0.04 from each other.",
            )
        )  # fmt: skip
        made.append(
            Finding(
                name, "weights.spikes", spikes, "count", max(0, spikes - 1), spikes, 0.0, 0.05 / (1 + spikes) ** 4,
                "yes" if spikes else "no",
                f"{spikes} eigenvalues lie above 5003, the edge of the same entries with random signs (19 replicas).",
            )
        )  # fmt: skip
        made.append(
            Finding(
                name, "weights.heavy-tail", None if i % 9 == 4 else alpha, "exponent", alpha - 0.4, alpha + 0.4, 2.45, 0.2,
                "cannot say",
                f"Exponent {alpha:.2f} on 61 of 384 eigenvalues, but a random matrix of this shape gives 2.4 and a "
                "lognormal fits as well.",
            )
        )  # fmt: skip
    damaged = names(count)[5]
    made.append(
        Finding(damaged, "weights.damaged", 3, "entries", None, None, 0, None, "yes", "3 of 147456 entries are NaN.")
    )
    made.append(Finding("run", "weights.damaged", 0, "entries", None, None, 0, None, "no", "No other entry is."))
    return made


def figures(layers: list[str]) -> dict[str, Figure]:
    rng = np.random.default_rng(11)
    made: list[Figure] = []

    def add(name: str, title: str, caption: str, chart: charts.Chart, table: str | None) -> None:
        made.append(Figure(name, title, caption, *chart, table))

    every = names()
    alpha = 2 + rng.gamma(3, 0.5, size=LAYERS)
    depth = Axes("layer, in order of the source", "exponent")
    null = Series("null", [], np.full(LAYERS, 2.4), np.full(LAYERS, 2.2), np.full(LAYERS, 2.7))
    one = charts.by_depth(
        {"α": alpha, "Hill": alpha * 0.6 + 1}, every, depth, low=alpha - 0.4, high=alpha + 0.4, null=null
    )
    two = charts.by_depth({"spikes": rng.poisson(3, LAYERS)}, every, Axes(depth.x, "count"))
    kinds = rng.choice(["random-like", "bulk+spikes", "heavy-tailed"], LAYERS).tolist()
    three = charts.strip(every, kinds, Axes(depth.x, ""))
    add("overview", "All layers by depth", "Top: exponents; grey boxes are the null. Bottom: `phase`.",
        charts.stack([("Tail exponent", one), ("Spikes", two), ("Phase", three)]), "layers")  # fmt: skip
    for number, layer in enumerate(layers):
        values = np.r_[rng.gamma(2, 2, size=380), 40, 70, 120]
        x = np.geomspace(8, 120, 60)
        fit = Series("power law, α 2.41", x, 0.5 * x**-2.41 * 60)
        add(f"esd.{number}", f"Spectral density of {layer}", "Both axes logarithmic.", charts.histogram(
            {"eigenvalues": values, "shuffled": rng.gamma(2, 2, 1500)}, Axes("eigenvalue λ", "density", log="xy"),
            nulls=("shuffled",), curves=[fit], marks=[Mark("xmin", 8.0), Mark("λ₊", 21.0)]), "spectra")  # fmt: skip
        add(f"ccdf.{number}", "Survival function", "A straight line is a power law.", charts.ccdf(
            {"eigenvalues": values}, Axes("eigenvalue λ", "share at or above", log="xy"), fits=[fit]), "spectra")  # fmt: skip
    grid = rng.random((40, 40)) * np.linspace(0, 3, 40)
    add("overlap", "Overlap of updates with the spectrum", "Grey is the null.",
        charts.heat(grid, range(40), range(40), Axes("rank in W", "rank in M"), unit="overlap", middle=1.0), None)  # fmt: skip
    t = np.arange(200)
    band = Series("refit loss", t, 1 + 0.3 * np.exp(-t / 50), 0.9 + 0.3 * np.exp(-t / 50), 1.1 + 0.3 * np.exp(-t / 50))
    add("loss", "Losses over steps", "Bands are ranges over seeds.",
        charts.lines([band, Series("null", t, np.full(200, 1.2), null=True)], Axes("step", "loss")), None)  # fmt: skip
    pairs = {"Adam": (alpha[:30], alpha[:30] * 1.02, every[:30]), "GD": (alpha[30:], alpha[30:] * 0.95, every[30:])}
    add("predicted", "Predicted against observed λ₁", "On the line they agree.",
        charts.scatter(pairs, Axes("predicted", "observed", square=True), identity=True), "layers")  # fmt: skip
    add("values", "Singular values", "Descending.", charts.bars(
        {"singular values": np.sort(rng.gamma(2, 2, 60))[::-1]}, list(range(1, 61)), Axes("rank", "σ"),
        marks=[Mark("√λ₊", 4.0, axis="y")]), "spectra")  # fmt: skip
    return {figure.name: figure for figure in made}


def header(**changes: Any) -> dict[str, Any]:
    return {
        "schema": "querist.run/1",
        "room": "weights",
        "command": "scan",
        "version": "0.1.0",
        "status": "done",
        "seed": 7,
        "config": {
            "seed": 7, "device": "auto", "source": "models/mini lm.safetensors", "include": ["*"], "exclude": [],
            "farms": False, "split": True, "nulls": ["shuffle", "signflip"], "replicas": 3, "grid": None,
        },
        "engine": "local:2",
        "started": "2025-11-30T05:27:38Z",
        "finished": "2025-11-30T05:29:41Z",
        "seconds": 123.4567,
        "versions": {"python": "3.11.2", "querist": "0.1.0", "torch": "2.13.0", "numpy": "2.4.1"},
        "host": {"name": "bench <1>", "cores": 2, "memory": "16 GiB", "system": "Linux 6.1"},
        "inputs": {"models/mini lm.safetensors": "sha256:" + "0f" * 32, HOSTILE: "sha256:" + "a1" * 32},
        "failed": [],
        **changes,
    }  # fmt: skip


def document(**changes: Any) -> Document:
    """The sample; `changes` go into run.json."""
    shown = [names()[0], *names()[2:5]]
    drawn = figures(shown)
    found = findings()
    sections = (
        Section(
            "Findings",
            words=("Every layer was asked the same questions. A verdict of `cannot say` is an answer.",),
            findings=(("*", "weights.trained"), ("*", "weights.spikes"), ("*", "weights.heavy-tail")),
        ),
        Section("Overview", figures=("overview", "overlap", "loss", "predicted", "values"), tables=("layers",)),
        Section("Layer by layer", words=("The most surprising layers first.",)),
        *(
            Section(layer, findings=((layer, "*"),), figures=(f"esd.{i}", f"ccdf.{i}"), level=3, open=i < 2)
            for i, layer in enumerate(shown)
        ),
    )
    layout = Layout(
        "What training left in mini lm.safetensors",
        "38 of 60 matrices differ from their shuffled copies. One holds NaN entries & must not be used as it is.",
        sections,
        (LAYERS_SPEC, SPECTRA_SPEC),
        QUESTIONS,
    )
    head = header(**changes)
    summary = {
        "schema": "querist.weights.scan/1",
        "room": "weights", "command": "scan", "version": "0.1.0", "status": head["status"], "seed": 7,
        "run": "runs/weights-scan-1", "seconds": 123.4567, "config": head["config"],
        "warnings": [f"The interval of α is conservative for rigid spectra {HOSTILE}.", "Two layers have short tails."],
        "passed_over": [{"what": f"encoder.layer.{i}.bias", "reason": "one axis <1-D>"} for i in range(12)]
        + [{"what": HOSTILE, "reason": "integer tensor"}],
        "tables": {"layers": "tables/layers.parquet", "spectra": "tables/spectra.parquet"},
        "findings": [finding.as_dict() for finding in found],
    }  # fmt: skip
    return Document(head, layout, found, frames(), drawn, summary)


def second(one: Document) -> Document:
    """Another run of the same command: one verdict turned, one estimate moved, one layer gone, an option changed."""
    found = list(one.findings)
    turned = next(i for i, f in enumerate(found) if f.question == "weights.trained" and f.verdict == "no")
    found[turned] = replace(found[turned], verdict="yes", because="Now it is farther.")
    moved = next(
        i for i, f in enumerate(found) if f.question == "weights.trained" and f.verdict == "yes" and i != turned
    )
    found[moved] = replace(found[moved], estimate=9.0, low=8.0, high=10.0)
    found = [finding for finding in found if finding.subject != names()[-1]]
    layers = one.tables["layers"].filter(pl.col("layer_id") != names()[-1])
    layers = layers.with_columns(alpha=pl.col("alpha") + 0.5)
    config = {**one.header["config"], "replicas": 5, "farms": True}
    return replace(one, header=header(config=config), findings=found, tables={**one.tables, "layers": layers})
