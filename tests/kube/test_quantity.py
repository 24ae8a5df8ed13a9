"""Quantities against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carico.kube import quantity

SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


@given(st.integers(0, 10**12), st.integers(0, 9), st.sampled_from(sorted({**SUFFIXES, **BINARY})))
def test_every_form_is_exact(whole: int, places: int, suffix: str) -> None:
    number = Fraction(whole, 10**places)
    text = f"{whole // 10**places}.{whole % 10**places:0{places}d}" if places else str(whole)
    scale = Fraction(1024) ** BINARY[suffix] if suffix in BINARY else Fraction(10) ** SUFFIXES[suffix]
    assert quantity.parse(text + suffix) == number * scale
    assert quantity.whole(text + suffix) == math.ceil(number * scale)


@given(st.integers(-999, 999), st.integers(-12, 12), st.sampled_from("eE"))
def test_exponents(number: int, exponent: int, letter: str) -> None:
    assert quantity.parse(f"{number}{letter}{exponent}") == number * Fraction(10) ** exponent


@pytest.mark.parametrize("text", ["", "1KiB", "Gi", "1 ", "0x1", "1e", "--1", "1_000", "١"])
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity.parse(text)


@given(st.integers(-(10**9), 10**9), st.integers(0, 20), st.integers(-(10**9), 10**9))
def test_absurd_exponents_cost_nothing_and_make_no_difference(whole: int, zeros: int, exponent: int) -> None:
    """Exact where it matters; beyond that as good as infinite, or as good as nothing."""
    text = f"{whole}.{'0' * zeros}e{exponent}"
    quantity.parse.cache_clear()
    found = quantity.parse(text)
    assert found.numerator.bit_length() + found.denominator.bit_length() < 1000  # and not millions of digits
    if abs(exponent) <= 30:
        assert found == whole * Fraction(10) ** exponent
    elif exponent > 0:
        assert abs(found) >= 10**30 * min(1, abs(whole))
    else:
        assert abs(found) <= Fraction(10) ** -20


def test_a_quantity_of_any_length_is_no_way_to_fill_the_memory() -> None:
    for text in ("1" * 5000, "1" * 1_000_000, "0." + "0" * 5000 + "1"):
        with pytest.raises(ValueError, match="is not a quantity") as caught:
            quantity.parse(text)
        assert len(str(caught.value)) < 300
