"""Four workers on one server, with accidents: their calls are explained by one bucket.

The short run lasts six seconds, the long one five minutes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Event

import pytest

from tests.histories.app import LIMIT
from tests.histories.checker import Unexplained, explain
from tests.histories.faults import Faults
from tests.histories.history import Call, History
from tests.histories.site import Site, record, serving
from tests.property.profiles import is_long
from tests.servers import ENGINES, Server

CLIENTS = 6

#: Seconds: a client pauses so long between calls on average, and so long passes between faults.
PAUSE, BETWEEN = 0.02, 0.3

#: Seconds before the first fault, so that each history has a part that leaves no doubt.
QUIET = 1.5


@dataclass(frozen=True, slots=True)
class Recorded:
    history: History
    faults: Counter[str]

    def quiet(self) -> History:
        """Return the history before the first doubt."""
        doubts = [*self.history.resets, *(call.begun for call in self.history.lost())]
        return self.history.until(min(doubts))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A history of real workers, with faults of every kind."""
    server = Server(ENGINES["valkey"]()).start()
    try:
        with serving(server, tmp_path_factory.mktemp("site") / "log") as site:
            yield run(site, 300 if is_long() else 6)
    finally:
        server.stop()


def run(site: Site, seconds: float) -> Recorded:
    """Let clients call, and inflict faults meanwhile."""
    over, seed = Event(), time.time_ns()
    print(f"seed {seed}")  # noqa: T201
    faults = Faults(site, seed)
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        clients = [pool.submit(record, site, seed + n, PAUSE, over) for n in range(CLIENTS)]
        try:
            time.sleep(QUIET)
            accidents = pool.submit(faults.inflict, BETWEEN, over)
            time.sleep(seconds)
        finally:
            over.set()
        accidents.result()
        calls = [call for client in clients for call in client.result()]
    return Recorded(History(calls, faults.resets), faults.count)


def is_explained(history: History) -> bool:
    try:
        explain(LIMIT, history)
    except Unexplained:
        return False
    return True


def test_one_bucket_explains_all_answers(recorded: Recorded) -> None:
    history = recorded.history
    order = explain(LIMIT, history)
    granted = sum(call.answer.allowed for call in history.answered() if call.answer)
    lost, happened = len(history.lost()), sum(call.answer is None for call in order)
    print(  # noqa: T201
        f"{len(history.calls):,} calls, {granted:,} granted, {lost:,} lost, of which {happened:,} "
        f"happened in the order found; {dict(recorded.faults)}"
    )
    assert {call for call in order if call.answer} == {*history.answered()}
    assert 0 < granted < len(history.answered())


def test_every_kind_of_fault_was_in_it(recorded: Recorded) -> None:
    assert len(recorded.faults) == 6
    assert recorded.history.lost()


def followed(history: History) -> list[Call]:
    """Return the calls that are followed by another before the bucket is full again."""
    pairs = pairwise(history.answered())
    return [call for call, later in pairs if later.answer and later.answer.remaining < 50]


def one_more(history: History, call: Call, by: int = 1) -> History | None:
    """Change how many tokens were left."""
    assert call.answer is not None
    return history.changed(call, replace(call.answer, remaining=call.answer.remaining + by))


def one_less(history: History, call: Call) -> History | None:
    return one_more(history, call, -1)


def turned(history: History, call: Call) -> History | None:
    """Turn an allowed call into a refused one, or the other way round."""
    assert call.answer is not None
    return history.changed(call, replace(call.answer, allowed=not call.answer.allowed))


def dropped(history: History, call: Call) -> History | None:
    """Leave out a call that took tokens."""
    assert call.answer is not None
    return history.without(call) if call.answer.allowed and call.cost else None


Change = Callable[[History, Call], History | None]
CHANGES: tuple[Change, ...] = (one_more, one_less, turned, dropped)


@pytest.mark.parametrize("change", CHANGES)
def test_a_history_with_one_answer_changed_is_rejected(recorded: Recorded, change: Change) -> None:
    """Where no call was lost before: a lost one may explain a change."""
    rejected = rejections(recorded.quiet(), change, 20)
    assert len(rejected) >= 5
    assert all(rejected)


def test_lost_calls_hide_few_changes(recorded: Recorded) -> None:
    lives = recorded.history.lives()
    rejected = [r for life in lives for change in CHANGES for r in rejections(life, change, 2)]
    print(f"{sum(rejected):,} of {len(rejected):,} changes rejected")  # noqa: T201
    assert sum(rejected) >= 0.8 * len(rejected)


def rejections(history: History, change: Change, most: int) -> list[bool]:
    """Change at most so many answers, one at a time; return for each whether it was rejected."""
    assert is_explained(history)
    changed = [change(history, call) for call in followed(history)]
    possible = [one for one in changed if one is not None]
    return [not is_explained(one) for one in possible[:: len(possible) // most + 1]]
