"""Numbers, intervals and arms as the room's sentences have them."""

from __future__ import annotations

import doctest

import pytest

from querist.effects import words


def test_the_examples_of_the_module_hold():
    found = doctest.testmod(words)
    assert (found.failed, found.attempted) == (0, 4)


@pytest.mark.parametrize(
    ("value", "plain", "signed"),
    [
        (0.00123456, "0.00123", "+0.00123"),
        (-12.345, "-12.3", "-12.3"),
        (999.4, "999", "+999"),
        (1234567.0, "1,234,567", "+1,234,567"),
        (None, "not known", "not known"),
        (float("inf"), "inf", "+inf"),
    ],
)
def test_numbers(value, plain, signed):
    assert words.number(value) == plain
    assert words.signed(value) == signed


def test_an_interval_needs_both_ends():
    assert words.between(-1500.0, 0.2) == " [-1,500, 0.2]"
    assert words.between(0.1, None) == ""
    assert words.between(1 / 3, 2 / 3, ".2f") == " [0.33, 0.67]"
    assert (words.p_told(None), words.p_told(0.04321)) == ("not tested", "0.0432")
