"""Charts say what they were given: areas are one, thinning keeps shape, gaps stay gaps, colours can be told apart."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from querist.errors import InvariantBroken
from querist.results import charts, traces
from querist.results.charts import Axes, Mark, Series

RNG = np.random.default_rng(7)
LOG = Axes("λ", "density", log="xy")


def area(trace) -> float:
    """Under a step line, gaps of a logarithmic axis counted as nothing."""
    x, y = np.array(trace["x"]), np.array([0.0 if v is None else v for v in trace["y"]])
    return float(np.sum(np.diff(x)[::2] * y[::2]))


@pytest.mark.parametrize("axes", [Axes("x", "y"), LOG])
def test_a_density_histogram_has_area_one_for_every_sample(axes):
    data, _ = charts.histogram({"a": RNG.lognormal(size=4000), "b": RNG.lognormal(1, 2, size=500)}, axes)
    assert [area(trace) for trace in data[1:]] == pytest.approx([1.0, 1.0], abs=1e-4)


def test_a_histogram_without_density_counts_as_numpy_does():
    values = RNG.normal(size=1000)
    data, _ = charts.histogram({"a": values}, Axes("x", "y"), bins=20, density=False)
    assert data[1]["y"][::2] == np.histogram(values, 20)[0].tolist()


def test_values_that_a_log_axis_cannot_show_are_counted_in_the_name():
    data, _ = charts.histogram({"a": [0.0, -1.0, 1.0, 2.0, np.nan]}, LOG)
    assert data[1]["name"] == "a (3 not drawn)"
    assert area(data[1]) == pytest.approx(1.0, abs=1e-4)  # edges 1 % apart carry six digits


def test_an_empty_or_constant_sample_still_draws():
    for values in ([], [3.0, 3.0], [0.0]):
        data, layout = charts.histogram({"a": values}, LOG, marks=[Mark("edge", 2.0), Mark("none", None)])
        json.dumps([data, layout], allow_nan=False)
        assert [trace["name"] for trace in data[2:]] == ["edge: 2"]


def test_a_million_values_make_kilobytes():
    data, layout = charts.histogram({"a": RNG.lognormal(size=1_000_000)}, LOG)
    assert len(json.dumps([data, layout])) < 8_000
    data, layout = charts.ccdf({"a": RNG.lognormal(size=300_000)}, LOG)
    assert len(json.dumps([data, layout])) < 12_000


def test_ccdf_starts_at_one_ends_at_one_in_n_and_is_a_straight_line_for_a_pareto_law():
    n = 20_000
    values = (1 - (np.arange(n) + 0.5) / n) ** (-1 / 1.5)  # quantiles of survival x**-1.5
    data, _ = charts.ccdf({"pareto": values}, LOG)
    x, y = np.array(data[0]["x"]), np.array(data[0]["y"])
    assert (y[0], y[-1]) == (1.0, 1 / n)
    assert np.polyfit(np.log(x), np.log(y), 1)[0] == pytest.approx(-1.5, abs=0.05)


def test_ccdf_counts_ties_at_or_above():
    data, _ = charts.ccdf({"a": [1.0, 2.0, 2.0, 5.0]}, Axes("x", "share"))
    assert data[0]["x"] == [1, 2, 5]
    assert data[0]["y"] == [1.0, 0.75, 0.25]


@given(st.integers(3, 5000), st.integers(3, 400), st.sampled_from(["", "x", "y", "xy"]), st.integers(0, 10**6))
def test_thinning_keeps_to_the_limit_and_to_points_of_the_line(n, limit, log, seed):
    rng = np.random.default_rng(seed)
    x, y = np.sort(rng.lognormal(size=n)), rng.lognormal(size=n)
    u, v = charts.thin(x, y, limit=limit, log=log)
    assert len(u) <= limit
    assert set(zip(u, v, strict=True)) <= set(zip(x, y, strict=True))
    assert (u[0], u[-1]) == (x[0], x[-1])
    assert np.all(np.diff(u) >= 0)


def test_thinning_keeps_a_lone_peak_and_covers_a_log_axis_evenly():
    x = np.arange(1.0, 100_001)
    y = np.ones_like(x)
    y[54_321] = 50.0
    u, v = charts.thin(x, y)
    assert v.max() == 50.0
    u, _ = charts.thin(x, 1 / x, log="xy")
    assert np.count_nonzero(u < 1000) > 100  # three of five decades; by count of points it would be four


def test_a_path_that_turns_back_is_thinned_along_itself():
    t = np.linspace(0, 2 * np.pi, 5000)
    u, v = charts.thin(np.cos(t), np.sin(t), limit=100)
    assert len(u) <= 100
    assert np.hypot(u, v) == pytest.approx(1.0)
    assert v.min() < -0.99


def test_lines_keep_gaps_and_never_hold_nan():
    data, layout = charts.lines(
        [Series("a", [1, 2, 3, 4], [1.0, np.nan, None, np.inf]), Series("n", [1], [2], null=True)], Axes("t", "y")
    )
    assert data[0]["y"] == [1.0, None, None, None]
    assert data[1]["line"]["color"] == traces.GREY
    json.dumps([data, layout], allow_nan=False)


def test_a_band_is_drawn_only_where_both_its_ends_are_known():
    data, _ = charts.lines(
        [Series("a", [1, 2, 3, 4], [1, 1, 1, 1], low=[0, None, 0, 0], high=[2, 2, 2, 2])], Axes("t", "y")
    )
    band = data[0]
    assert band["fill"] == "toself"
    assert band["x"] == [1, 1, 1, None, 3, 4, 4, 3, 3, None]
    assert band["y"] == [2, 0, 2, None, 2, 2, 0, 0, 2, None]


def test_by_depth_gives_each_layer_its_null_box_and_its_interval():
    data, layout = charts.by_depth(
        {"α": [2.0, None, 3.0]},
        ["a", "b" * 60, "c"],
        Axes("layer", "α"),
        low=[1.5, None, 2],
        high=[2.5, None, 5],
        null=Series("null", [], [2, None, 2], [1, None, 1.5], [3, None, 2.5]),
    )
    box, middle, points = data
    assert box["x"][:5] == [-0.4, 0.4, 0.4, -0.4, -0.4]
    assert 1.4 not in box["x"]
    assert middle["y"][:3] == [2, 2, 2]
    assert points["error_y"]["array"] == [0.5, None, 2.0]
    assert points["error_y"]["arrayminus"] == [0.5, None, 1.0]
    assert points["text"][1] == "b" * 60
    assert max(len(tick) for tick in layout["xaxis"]["ticktext"]) <= 26


def test_strip_places_every_layer_on_the_row_of_its_kind():
    data, layout = charts.strip(["l0", "l1", "l2", "l3"], ["b", "a", None, "b"], Axes("", ""), order=("b", "z", "a"))
    assert [(trace["name"], trace["x"]) for trace in data] == [("b (2)", [0, 3]), ("a (1)", [1])]
    assert layout["yaxis"]["categoryarray"] == ["a", "b"]
    assert len({trace["marker"]["symbol"] for trace in data}) == 2


def test_a_strip_marks_what_is_not_sure():
    data, _ = charts.strip(["l0", "l1"], ["a", "a"], Axes("", ""), sure=[True, False])
    first, second = data[0]["marker"]["symbol"]
    assert second == f"{first}-open"
    assert data[0]["text"][1].endswith("(cannot say)")


def test_bars_beyond_the_limit_become_a_line():
    few, _ = charts.bars({"a": [1, 2]}, ["x", "y"], Axes("", ""), low=[0, 1], high=[2, 4])
    many, _ = charts.bars({"a": np.arange(2000)}, list(range(2000)), Axes("", ""))
    assert few[0]["type"] == "bar"
    assert few[0]["error_y"]["array"] == [1, 2]
    assert many[0]["type"] == "scatter"
    assert len(many[0]["x"]) <= traces.LIMIT


def test_a_mark_across_bars_adds_no_bar():
    data, _ = charts.bars({"a": [1, 2, 3]}, ["x", "y", "z"], Axes("", ""), marks=[charts.Mark("null", 0.5, "y")])
    assert (data[1]["x"], data[1]["y"]) == (["x", "z"], [0.5, 0.5])


def test_a_large_heat_map_keeps_its_block_means():
    z = RNG.random((1000, 320))
    z[0, 0] = np.nan
    data, _ = charts.heat(z, range(320), range(1000), Axes("x", "y"))
    small = np.array(data[0]["z"], dtype=float)
    assert small.shape == (160, 160)
    assert small[5, 7] == pytest.approx(z[31:37, 14:16].mean(), rel=1e-5)
    assert small[0, 0] == pytest.approx(np.nanmean(z[0:6, 0:2]), rel=1e-5)
    assert data[0]["x"][:3] == [0, 2, 4]


def test_a_heat_map_centres_on_its_null_and_takes_logarithms():
    data, _ = charts.heat([[0.01, 1.0], [0.0, 100.0]], ["a", "b"], ["c", "d"], Axes("", ""), log=True, middle=10.0)
    assert data[0]["z"] == [[-2.0, 0.0], [None, 2.0]]
    assert (data[0]["zmin"], data[0]["zmax"]) == (-2.0, 2.0)
    assert data[0]["colorscale"] == [[0.0, "#2e73b8"], [0.75, "#b9bec4"], [1.0, "#c4a586"]]  # a third of the way up
    with pytest.raises(InvariantBroken, match="2 rows"):
        charts.heat([[1.0]], ["a"], ["c", "d"], Axes("", ""))


def test_a_log_histogram_is_filled_bin_by_bin_and_not_across_empty_bins():
    data, layout = charts.histogram({"a": [1.0, 1.0, 1000.0]}, LOG, bins=3, density=False)
    assert data[1]["y"] == [2, 2, None, None, 1, 1]
    assert data[0]["x"] == [1, 10, 10, 1, 1, None, 100, 1000, 1000, 100, 100, None]
    assert data[0]["y"] == [2, 2, 0.5, 0.5, 2, None, 1, 1, 0.5, 0.5, 1, None]
    assert layout["xaxis"]["dtick"] == 1


def test_identity_spans_predictions_and_observations():
    data, _ = charts.scatter({"g": ([1, 5], [2, 9], ["one", "two"])}, Axes("", ""), identity=True)
    assert data[0]["x"] == data[0]["y"] == [1, 9]


def test_stack_names_each_series_once_and_shares_equal_axes():
    one = charts.by_depth({"a": [1, 2]}, ["p", "q"], Axes("layer", "α"))
    other = charts.by_depth({"a": [3, 4]}, ["p", "q"], Axes("layer", "β"))
    data, layout = charts.stack([("A", one), ("B", other), ("C", charts.heat([[1.0]], [0], [0], Axes("i", "j")))])
    assert [trace["showlegend"] for trace in data] == [True, False, False]
    assert [trace["yaxis"] for trace in data] == ["y", "y2", "y3"]
    assert layout["xaxis"]["matches"] == "x2"
    assert "matches" not in layout["xaxis2"]
    spans = [layout[f"yaxis{i}"]["domain"] for i in ("", 2, 3)]
    assert all(low > next_high for (low, _), (_, next_high) in itertools.pairwise(spans))


def test_hostile_names_reach_plotly_as_letters():
    data, _ = charts.scatter({"<b>x</b>": ([1], [1], ["<a href='x'>&</a>"])}, Axes("", ""))
    assert data[0]["name"] == "&lt;b&gt;x&lt;/b&gt;"
    assert data[0]["text"] == ["&lt;a href='x'&gt;&amp;&lt;/a&gt;"]


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("colour", [*traces.PALETTE, traces.GREY])
def test_every_colour_has_contrast_three_on_white_and_on_a_dark_page(colour):
    """WCAG 2.2, 1.4.11: graphical objects."""
    assert 1.05 / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (luminance("#15181d") + 0.05) >= 3


# Severity 1.0 matrices of Machado, Oliveira and Fernandes 2009.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour: str, deficiency: str) -> np.ndarray:
    seen = np.clip(np.asarray(DEFICIENCIES[deficiency]) @ linear(colour), 0, 1)
    to_xyz = np.array([[0.41246, 0.35758, 0.18044], [0.21267, 0.71515, 0.07218], [0.01933, 0.11919, 0.95030]])
    xyz = to_xyz @ seen / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_the_null_and_the_first_three_colours_stay_apart_without_colour_vision(deficiency):
    seen = [lab(colour, deficiency) for colour in (*traces.PALETTE[:3], traces.GREY)]
    apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 20  # ten times a just noticeable difference


def test_charts_import_neither_plotly_nor_scipy():
    code = "import sys, querist.results.charts; print([n for n in ('plotly', 'scipy', 'torch') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
