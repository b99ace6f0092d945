"""One hot bucket, many processes and threads, and the server's own clock; then with accidents.

Together the workers get at most the capacity plus the refill between the first decision and the
last one. They ask all the time, so they get at least that minus one call in flight for each.
"""

from __future__ import annotations

import time
from itertools import pairwise

from tests.property.hammer import LIMIT, WORKERS, Taken, hammer, meanwhile
from tests.property.profiles import is_long
from tests.servers import Server

#: Workers need a second to start; the rest is spent taking.
SECONDS = 10.0 if is_long() else 2.0


def most(seconds: float) -> float:
    return LIMIT.capacity + float(LIMIT.rate) * seconds


def test_all_workers_together_get_the_refill_and_no_more(own_server: Server) -> None:
    taken = hammer(own_server.url, SECONDS)
    assert taken.lost == 0
    assert taken.refusals, "no request was refused, so the limit was not tested"
    assert most(taken.elapsed) - WORKERS <= len(taken.grants) <= most(taken.elapsed)


def test_killed_connections_and_flushed_scripts_grant_nothing_more(own_server: Server) -> None:
    def accident() -> None:
        with own_server.client() as client:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            client.script_flush()

    with meanwhile(accident, every=0.05):
        taken = hammer(own_server.url, SECONDS)
    assert taken.refusals
    # A lost call may have been granted before its answer was lost.
    assert most(taken.elapsed) - WORKERS - taken.lost <= len(taken.grants) <= most(taken.elapsed)


def test_a_flushed_script_alone_loses_nothing(own_server: Server) -> None:
    def accident() -> None:
        with own_server.client() as client:
            client.script_flush()

    with meanwhile(accident, every=0.01):
        taken = hammer(own_server.url, SECONDS)
    assert taken.lost == 0
    assert most(taken.elapsed) - WORKERS <= len(taken.grants) <= most(taken.elapsed)


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
