"""The names of limits."""

from __future__ import annotations

import pytest
from hypothesis import given

from flask_bucket.errors import ConfigError
from flask_bucket.limits import NAME, Limit, distinct_names
from tests.property.worlds import limits


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("5/second", "per-second"),
        ("5/second burst 20", "per-second"),
        ("1 per 15 minutes", "per-15-minutes"),
        ("1 per 600 ms", "per-600-ms"),
        ("1/60 s", "per-minute"),
        ("1/90 s", "per-90-seconds"),
        ("1/30 days", "per-month"),
        ("1/14 days", "per-2-weeks"),
        ("1/ms", "per-ms"),
        ("1/0.5ms", "per-0.5-ms"),
    ],
)
def test_a_limit_is_named_after_its_period(text: str, name: str) -> None:
    assert Limit.parse(text).name == name


@given(limits())
def test_every_period_has_a_valid_name(limit: Limit) -> None:
    assert NAME.fullmatch(limit.name)


@pytest.mark.parametrize("name", ["a", "per-second", "x.y_z-1"])
def test_a_name_may_be_given(name: str) -> None:
    assert Limit(1, 1, name=name).name == name
    assert Limit.parse("1/s", name=name).name == name


@pytest.mark.parametrize(
    "name", ["", "A", "1a", "-a", "a b", "a:b", "a{b", "a\n", "\u00e4", 5, True]
)
def test_an_invalid_name_is_refused(name: object) -> None:
    with pytest.raises(ConfigError, match="name is lower-case letters") as refused:
        Limit(1, 1, name=name)  # type: ignore[call-overload]
    assert repr(name) in str(refused.value)


def test_limits_with_different_names_are_different() -> None:
    assert Limit(1, 1) == Limit(1, 1)
    assert Limit(1, 1) != Limit(1, 1, name="other")
    assert hash(Limit(1, 1)) == hash(Limit(1.0, 1.0))


def test_limits_that_would_share_a_bucket_are_told_apart() -> None:
    names = [x.name for x in distinct_names(Limit.parse_many("1/s; 2/s; 1/m; 3/s"))]
    assert names == ["per-second", "per-second-2", "per-minute", "per-second-3"]


def test_a_limit_added_after_others_changes_none_of_their_names() -> None:
    some = Limit.parse_many("1/s; 2/s")
    assert distinct_names((*some, Limit(3, 3)))[:2] == distinct_names(some)


def test_a_name_that_looks_like_a_numbered_one_is_not_given_twice() -> None:
    taken = (Limit(1, 1, name="x-2"), Limit(1, 1, name="x"), Limit(2, 2, name="x"))
    assert [x.name for x in distinct_names(taken)] == ["x-2", "x", "x-3"]
