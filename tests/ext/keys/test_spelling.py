"""Keys cannot collide, be injected or grow."""

from __future__ import annotations

import re
from string import ascii_lowercase, digits
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flask_bucket import Limiter
from flask_bucket.keys import Spelling, ending, shortened, spelled
from flask_bucket.limits import NAME
from tests.ext.conftest import CountingStore, answer, statuses

# Spelling. The strategies lean to what could be mistaken for the key's own marks.

MARKS = st.sampled_from(["", ":", "{", "}", "%", "@", "#", "/", " ", "\n", "\x00", "\ud800", "a"])
WORDS = ["v", "v@default", "%40", "manual", "}:v:per-minute", "#", "#" + "0" * 32, "\ud800", "é"]
PARTS = st.one_of(
    st.text(st.characters(), max_size=120),
    st.lists(MARKS, max_size=6).map("".join),
    st.sampled_from(WORDS),
)
NAMES = st.builds(
    "{}{}".format,
    st.sampled_from(ascii_lowercase),
    st.text(ascii_lowercase + digits + "_.-", max_size=148),
).filter(NAME.fullmatch)
TRIPLES = st.tuples(PARTS, PARTS, NAMES)


def spell(client: str, scope: str, name: str) -> str:
    return Spelling("bucket").start(client) + ending(spelled(scope), name)


@given(TRIPLES, TRIPLES)
@settings(max_examples=300, deadline=None)
def test_no_two_triples_share_a_key(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assume(one != other)
    assert spell(*one) != spell(*other)


@given(PARTS, PARTS, NAMES)
@settings(max_examples=300, deadline=None)
def test_a_key_has_one_pair_of_braces_and_no_odd_character(
    client: str, scope: str, name: str
) -> None:
    key = spell(client, scope, name)
    assert re.fullmatch(r"bucket:\{[\w.~%#-]{1,100}\}:[\w.~%#-]{1,100}:[\w.~%#-]{1,100}", key, re.A)


@pytest.mark.parametrize("part", ["x" * 101, "é" * 17, "\ud800" * 12])
def test_a_long_part_is_a_digest(part: str) -> None:
    assert re.fullmatch("#[0-9a-f]{32}", spelled(part))
    assert spelled(part) != spelled(part + "x")


def test_a_part_of_100_bytes_is_still_readable() -> None:
    assert spelled("x" * 100) == "x" * 100


@pytest.mark.parametrize(
    "key", ["a}:v:per-minute", "{b}", "%7B", "a\nb", "@", "#", "\ud800", "x" * 500, "a:b c"]
)
def test_clients_choose_no_bucket_but_their_own(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore, key: str
) -> None:
    view = limiter.limit("1/minute", key_func=lambda: key)(answer())
    app.add_url_rule("/", "v", view)
    assert statuses(client, "/", 2) == [200, 429]
    assert re.fullmatch(r"bucket:\{[\w.~%#-]{1,100}\}:v:per-minute", buckets.keys[0], re.A)


def test_a_long_endpoint_and_name_do_not_grow_the_key(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    view = limiter.limit("1/minute", name="n" * 500, per_method=True)(answer())
    app.add_url_rule("/", "e" * 500, view)
    assert statuses(client, "/", 2) == [200, 429]
    assert max(map(len, buckets.keys)) < 150


@pytest.mark.parametrize("length", [92, 93, 98, 100, 101, 300])
@pytest.mark.parametrize("rule", ["1/day", lambda: "1/day"])
def test_a_scope_never_exceeds_100_bytes_with_its_marks(
    app: Flask, buckets: CountingStore, length: int, rule: Any
) -> None:
    Limiter(app, redis=buckets, default_limits=[rule])
    for last in "ab":
        app.add_url_rule(f"/{last}", "e" * (length - 1) + last, answer())
    for last in "ab":
        assert statuses(app.test_client(), f"/{last}", 2) == [200, 429]
    scopes = [key.split(":")[2] for key in buckets.keys]
    assert max(map(len, scopes)) <= 100
    assert all("@default" in scope for scope in scopes)


def test_a_scope_of_many_long_parts_is_one_digest() -> None:
    scopes = [f"{'e' * 99}@{'f' * 98}{last}@callable@{'9' * 33}@dry-run" for last in "ab"]
    one, other = map(shortened, scopes)
    assert len(one) == len(other) == 33
    assert one != other


def test_a_shortened_endpoint_meets_none_that_is_written_as_it_is_spelled() -> None:
    endpoint = "a:" + "b" * 95
    written = spelled(endpoint)
    assert (len(written), len(spelled(written))) == (99, 33), "only the second is a digest already"
    assert shortened(f"{written}@default") != shortened(f"{spelled(written)}@default")
