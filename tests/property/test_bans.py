"""The promises of bans, through whole applications with their refusal caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flask import Flask
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import strategies as st

from flask_bucket import Ban, Charge, Decision, Limit, Limiter, MemoryStore, Outcome, client_banned
from flask_bucket.stores.base import WrappingStore
from flask_bucket.stores.refusals import RefusalStore
from tests.conftest import START
from tests.property.clients import oracle_of
from tests.property.engines import Subject
from tests.property.oracle import BanOracle, ask
from tests.property.profiles import examples
from tests.property.worlds import DAY, SECOND

WORKERS = 3
PATHS = ("/", "/other")

few = st.integers(1, 4)
#: How far time moves before a request, who gets it, and what is asked for.
histories = st.lists(
    st.tuples(
        st.one_of(
            st.just(0), st.integers(0, 2 * SECOND), st.integers(0, 4_000 * SECOND), st.just(DAY)
        ),
        st.integers(0, WORKERS - 1),
        st.sampled_from(PATHS),
    ),
    min_size=1,
    max_size=40,
)


class Timed(WrappingStore):
    """A store whose time is passed in, as is that of the caches around it."""

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject.store)
        self.now = START

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        return self.store.take(charges, held, shadow, self.now)

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        self.store.settle(charges, self.now)


def worker(store: Timed, whole: Limit, own: Limit, ban: Ban) -> FlaskClient:
    """Return a client of one of several processes that share a store."""
    app = Flask("worker")
    limiter = Limiter(app, redis=MemoryStore(), application_limits=whole, bans=ban)
    cached = RefusalStore(store, 100, lambda: store.now / SECOND)
    app.extensions["flask_bucket"]["bucket"].store = cached
    for path in PATHS:
        app.add_url_rule(path, path.strip("/") or "index", limiter.limit(own)(lambda: "fine"))
    return app.test_client()


@examples(60, 600)
@given(
    whole=st.builds(Limit, st.integers(1, 6), few, st.just(60)),
    own=st.builds(Limit, few, few, st.just(3_600)),
    after=st.builds(Limit, few, few, st.just(7_200)),
    lasts=st.integers(1, 3_000_000_000),
    history=histories,
)
def test_refusals_in_all_workers_are_counted_and_bans_end_as_exact_rationals_say(
    subject: Subject,
    whole: Limit,
    own: Limit,
    after: Limit,
    lasts: int,
    history: list[tuple[int, int, str]],
) -> None:
    """The first point of a request or the second one refuses, in the store or in a cache."""
    subject.forget()
    store, began = Timed(subject), list[Outcome]()
    ban = Ban(after, float(lasts) / SECOND)
    assert ban.microseconds == lasts
    workers = [worker(store, whole, own, ban) for _ in range(WORKERS)]
    oracle, first = BanOracle(oracle_of(after), lasts), oracle_of(whole)
    views = {path: oracle_of(own) for path in PATHS}

    def note(sender: Any, outcome: Outcome, **_: Any) -> None:
        began.append(outcome)

    with client_banned.connected_to(note):
        for by, number, path in history:
            store.now += by
            began.clear()
            response = workers[number].get(path)
            for each in (first, views[path]):
                each.move(store.now)
            if oracle.is_banned(store.now):
                assert (response.status_code, began) == (429, [])
                left = oracle.ends - store.now
                assert int(response.headers["Retry-After"]) >= -(-left // SECOND)
                continue
            allowed, _ = ask([(first, 1)])
            if allowed:
                allowed, _ = ask([(views[path], 1)], [(first, 1)])
            assert response.status_code == (200 if allowed else 429)
            if not allowed:
                oracle.count(store.now)
            assert len(began) == (not allowed and oracle.is_banned(store.now))
