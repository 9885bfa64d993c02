"""The small study passes the harness, and the harness tells what it is there to tell."""

from __future__ import annotations

import polars as pl
import pytest
from tests.harness import assert_same_tables, check_coverage, check_level, check_page, check_study
from tests.runs.small_study import SmallConfig, SmallStudy


@pytest.mark.browser
def test_the_small_study_passes(tmp_path, chromium):
    result = check_study(SmallStudy, SmallConfig(), tmp_path, chromium=chromium)
    assert result.totals["value"][0] == pytest.approx(result.blocks["norm"].sum())


def test_tables_that_differ_in_one_bit_are_told_apart():
    one = {"t": pl.DataFrame({"a": [0.0, 1.0], "seconds": [1.0, 2.0]})}
    assert_same_tables(one, {"t": pl.DataFrame({"a": [0.0, 1.0], "seconds": [3.0, 4.0]})})
    for other in ([-0.0, 1.0], [0.0, 1.0 + 2**-52], [None, 1.0]):
        with pytest.raises(AssertionError, match=r"t\.a"):
            assert_same_tables(one, {"t": pl.DataFrame({"a": other, "seconds": [1.0, 2.0]})})


def test_lists_are_compared_by_bits_and_lengths():
    one = {"t": pl.DataFrame({"a": [[0.0], [1.0, 2.0]]})}
    for other in ([[0.0, 1.0], [2.0]], [[-0.0], [1.0, 2.0]], [None, [1.0, 2.0]]):
        with pytest.raises(AssertionError, match=r"t\.a"):
            assert_same_tables(one, {"t": pl.DataFrame({"a": other}, schema={"a": pl.List(pl.Float64)})})


def test_level_and_coverage_of_an_exact_test_and_of_wrong_ones():
    def z_p(x):
        from scipy.stats import norm

        return float(2 * norm.sf(abs(x.mean()) * len(x) ** 0.5))

    def draw(rng):
        return rng.standard_normal(20)

    check_level(z_p, draw)
    with pytest.raises(AssertionError, match="true nulls are rejected"):
        check_level(lambda x: z_p(x) / 4, draw)
    with pytest.raises(AssertionError, match="only"):
        check_level(lambda x: min(1.0, z_p(x) * 8), draw)
    check_level(lambda x: min(1.0, z_p(x) * 8), draw, conservative=True)

    half = 1.959964 / 20**0.5
    check_coverage(lambda x: (x.mean() - half, x.mean() + half), draw, 0.0)
    with pytest.raises(AssertionError, match="hold the truth"):
        check_coverage(lambda x: (x.mean() - half / 2, x.mean() + half / 2), draw, 0.0)
    with pytest.raises(AssertionError, match="hold the truth"):
        check_coverage(lambda x: (x.mean() - half * 2, x.mean() + half * 2), draw, 0.0)


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ("<title>t</title><img src='http://127.0.0.1:9/x.png'>", "127.0.0.1"),
        ("<title>t</title><script>console.error('oh')</script>", "oh"),
        ("<title>t</title><script>nothing.there()</script>", "nothing is not defined"),
        ("<title>t</title><img src='other.png'>", "one file"),
        ("<p>no title", "title"),
    ],
)
def test_a_bad_page_is_told(tmp_path, chromium, page, fault):
    path = tmp_path / "page.html"
    path.write_text(f"<!doctype html>{page}")
    with pytest.raises(AssertionError, match=fault):
        check_page(path, chromium)
