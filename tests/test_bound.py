"""Keys of limits that functions return, written and read back."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flask_bucket import Limit
from flask_bucket.bound import _apart, read_numbers
from flask_bucket.keys import KeyParts


def read_back(limit: Limit) -> Limit | None:
    ((_, ending, _),) = _apart("api.items@callable", (limit,))
    parts = KeyParts.of("bucket:{alice}" + ending)
    assert parts is not None
    return read_numbers(parts.scope, parts.name)


@given(
    st.integers(1, 10**6),
    st.fractions(Fraction(1, 10**6), 10**4, max_denominator=10**6),
    st.sampled_from([1, 60, 3600, 90, Fraction(1, 2)]),
)
def test_a_limit_that_a_function_returned_is_read_back_from_its_key(
    capacity: int, rate: Fraction, per: int | Fraction
) -> None:
    limit = Limit(capacity, rate, per)
    read = read_back(limit)
    assert read is not None
    assert (read.capacity, read.rate) == (limit.capacity, limit.rate)


@pytest.mark.parametrize("text", ["10/minute", "2 per 15 minutes burst 9", "5/second", "7/day"])
def test_it_is_read_back_in_the_words_that_people_write(text: str) -> None:
    assert str(read_back(Limit.parse(text))) == text


@pytest.mark.parametrize("scope", ["search", "search@callable", "a@5.0-per-1s", "a@0.5-per-1s"])
def test_other_scopes_say_no_limit(scope: str) -> None:
    assert read_numbers(scope, "per-minute") is None
