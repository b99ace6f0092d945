"""One hot bucket, many processes and threads, and the server's own clock; then with accidents.

Together the workers get at most the capacity plus the refill between the first decision and the
last one. Every decision is the one that the reference bucket makes at that time, so they get no
less than that either, however busy the machine is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

from flask_bucket import bucket
from flask_bucket.bucket import State
from tests.conftest import START
from tests.property.hammer import CHARGE, LIMIT, Taken, hammer, meanwhile
from tests.property.profiles import is_long
from tests.servers import Server

#: Workers need a second to start; the rest is spent taking.
SECONDS = 10.0 if is_long() else 1.0


def most(seconds: float) -> float:
    return LIMIT.capacity + float(LIMIT.rate) * seconds


def unexplained(taken: Taken) -> list[int]:
    """Return the times of decisions that the reference bucket would not make.

    It sees the grants alone, so it may hold a token too many for each lost call. A refusal says
    that there was less than one token, so that many lost calls had been granted. If the bucket
    was full beside a lost call, nobody knows which part of a token that left.
    """
    found: list[int] = []
    state: State | None = None
    last, unknown = 0, 0
    # Of several decisions in one microsecond, the grants came first: nothing was refilled.
    decisions = sorted([*((at, 0) for at in taken.grants), *((at, 1) for at in taken.refusals)])
    for at, refused in decisions:
        state, _ = bucket.refresh(LIMIT, state, at)
        lost = sum(began <= at and ended >= last for began, ended in taken.lost)
        if lost and state.tokens == LIMIT.full:
            unknown = 1
        if refused:
            too_many, rest = divmod(state.tokens, LIMIT.scale)
            is_explained = too_many <= lost + unknown
            if too_many:
                state = replace(state, tokens=LIMIT.scale - 1 if unknown else rest)
            last = at
        else:
            state = replace(state, tokens=state.tokens - CHARGE.cost * LIMIT.scale)
            is_explained = state.tokens >= 0
        if not is_explained:
            found.append(at)
    return found


def test_decisions_that_no_bucket_makes_are_found() -> None:
    full = [START] * LIMIT.capacity
    assert unexplained(Taken(full, [START, START + 3_333])) == []
    assert unexplained(Taken(full, [START + 3_334])) == [START + 3_334]
    assert unexplained(Taken([*full, START + 3_333])) == [START + 3_333]
    lost = [(START, START + 9)]
    assert unexplained(Taken(full[1:], [START + 1], lost)) == []
    assert unexplained(Taken(full[1:], [START + 1, START + 6_668], lost)) == [START + 6_668]
    lost = [(START + 1, START + 8)]
    assert unexplained(Taken(full[1:], [START + 9, START + 3_333], lost)) == []
    assert unexplained(Taken(full[1:], [START + 9, START + 3_334], lost)) == [START + 3_334]


def test_all_workers_together_get_the_refill_and_no_more(own_server: Server) -> None:
    taken = hammer(own_server.url, SECONDS)
    assert not taken.lost
    assert taken.refusals, "no request was refused, so the limit was not tested"
    assert len(taken.grants) <= most(taken.elapsed)
    assert unexplained(taken) == []


def test_killed_connections_and_flushed_scripts_grant_nothing_more(own_server: Server) -> None:
    def accident() -> None:
        with own_server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.script_flush()

    with meanwhile(accident, every=0.05):
        taken = hammer(own_server.url, SECONDS)
    assert taken.refusals
    assert len(taken.grants) <= most(taken.elapsed)
    assert unexplained(taken) == []


def test_a_flushed_script_alone_loses_nothing(own_server: Server) -> None:
    def accident() -> None:
        with own_server.client() as client:
            client.script_flush()

    with meanwhile(accident, every=0.01):
        taken = hammer(own_server.url, SECONDS)
    assert not taken.lost
    assert len(taken.grants) <= most(taken.elapsed)
    assert unexplained(taken) == []


def test_a_restarted_server_grants_no_more_than_a_full_bucket_in_each_life(
    own_server: Server,
) -> None:
    """Without persistence a restart forgets the bucket, and an absent bucket is full."""
    deaths: list[int] = []

    def accident() -> None:
        own_server.kill()
        deaths.append(time.time_ns() // 1_000)
        own_server.start()

    with meanwhile(accident, every=SECONDS / 4):
        taken = hammer(own_server.url, SECONDS)
    assert deaths
    lives = lived(taken, deaths)
    assert len([life for life in lives if life.grants]) > 1
    for life in lives:
        if life.grants:
            assert len(life.grants) <= most(life.elapsed)


def lived(taken: Taken, deaths: list[int]) -> list[Taken]:
    """Split what was taken into the lives of the server, from one death to the next."""
    bounds = [0, *deaths, 2**63]
    return [
        Taken(
            [at for at in taken.grants if born <= at < died],
            [at for at in taken.refusals if born <= at < died],
        )
        for born, died in pairwise(bounds)
    ]
