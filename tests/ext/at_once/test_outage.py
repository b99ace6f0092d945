"""Requests at once while the store is in trouble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from flask import Flask, Response

from flask_bucket import (
    AtOnce,
    Charge,
    Decision,
    Limiter,
    MemoryStore,
    StoreUnavailable,
    store_recovered,
)
from flask_bucket.stores.base import WrappingStore
from flask_bucket.stores.outage import OutageStore
from tests.ext.conftest import statuses

#: In microseconds.
MINUTE = 60_000_000


class Lossy(WrappingStore):
    """A store that is out of reach, or whose answers are lost on the way."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(lambda: 0))
        self.away = self.loses = self.readonly = False
        self.settled = 0
        #: Raised in the place of an answer that is lost.
        self.loss: BaseException = StoreUnavailable("lost")

    def take(
        self,
        charges: Sequence[Charge],
        held: Sequence[Charge] = (),
        shadow: Sequence[Charge] = (),
        now: int | None = None,
    ) -> Decision:
        if self.away or self.readonly:
            raise StoreUnavailable("away")
        decision = super().take(charges, held, shadow, now)
        if self.loses:
            raise self.loss
        return decision

    def settle(self, charges: Sequence[Charge], now: int | None = None) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.settled += 1
        super().settle(charges, now)

    @property
    def held(self) -> int:
        """How many slots the store says are held."""
        states: Any = self.store._states.values()  # type: ignore[attr-defined]  # its own
        return sum(len(kept) for kept in states if isinstance(kept, Mapping))


@pytest.fixture
def lossy() -> Lossy:
    return Lossy()


def limited(lossy: Lossy, policy: str, limit: str = "4 at once", **settings: Any) -> Flask:
    """Return an application whose answers are streamed, so that each holds a slot."""
    app = Flask("app")
    # Each call tries the store again.
    app.config |= {"BUCKET_ON_ERROR": policy, "BUCKET_RECOVERY_INTERVAL": 1e-9, **settings}
    limiter = Limiter(app, redis=lossy)
    app.add_url_rule("/", "view", limiter.limit(limit)(lambda: Response(iter(["a", "b"]))))
    return app


def test_all_requests_pass_if_the_policy_allows(lossy: Lossy) -> None:
    app, lossy.away = limited(lossy, "allow"), True
    assert statuses(app.test_client(), "/", 9) == [200] * 9


def test_no_request_passes_if_the_policy_denies(lossy: Lossy) -> None:
    app, lossy.away = limited(lossy, "deny"), True
    assert statuses(app.test_client(), "/", 2) == [503, 503]


@pytest.mark.parametrize(("share", "most"), [(1.0, 4), (0.5, 2), (0.1, 1)])
def test_each_process_has_its_share_of_the_slots(lossy: Lossy, share: float, most: int) -> None:
    app, lossy.away = limited(lossy, "local", BUCKET_LOCAL_SHARE=share), True
    client = app.test_client()
    assert statuses(client, "/", most + 1) == [200] * most + [429]


def test_a_process_does_not_begin_with_the_slots_that_the_store_has_held(lossy: Lossy) -> None:
    client = limited(lossy, "local", "1 at once").test_client()
    with client.get("/"):
        lossy.away = True
        for _ in range(2):
            assert client.get("/").data == b"ab"


def test_slots_of_a_process_are_given_back_to_it(lossy: Lossy) -> None:
    app, lossy.away = limited(lossy, "local", "1 at once"), True
    client = app.test_client()
    for _ in range(2):
        assert client.get("/").data == b"ab"


def test_slots_of_a_process_are_given_back_to_it_after_the_outage(lossy: Lossy) -> None:
    app, lossy.away = limited(lossy, "local", "1 at once"), True
    client = app.test_client()
    response = client.get("/")
    lossy.away = False
    response.close()
    lossy.away = True
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("policy", ["allow", "deny", "local"])
def test_a_slot_is_given_back_although_the_answer_was_lost(lossy: Lossy, policy: str) -> None:
    app, lossy.loses = limited(lossy, policy), True
    for _ in range(5):
        with app.test_client().get("/"):
            pass
    assert lossy.held == 0


def test_a_slot_that_could_not_be_given_back_goes_back_with_the_next_try(lossy: Lossy) -> None:
    """The lost answer began an outage, in which nothing is sent to the store."""
    now = [0.0]
    store = OutageStore(lossy, clock=lambda: now[0])
    slots = [
        Charge(AtOnce(1), "bucket:{c}:page:@at-once", kind="slot", member=member, lasts=MINUTE)
        for member in "ab"
    ]
    lossy.loses = True
    store.take(slots[:1])
    store.settle([slots[0].given_back()])
    lossy.loses = False
    assert store.take(slots[1:]).degraded
    assert lossy.held == 1
    now[0] += 1.0
    assert store.take(slots[1:]).outcomes[0].allowed
    assert lossy.held == 1  # by the second request
    assert lossy.settled == 1


def test_a_slot_is_given_back_although_the_call_was_broken_off(lossy: Lossy) -> None:
    """A worker's timeout raises an exception like this, wherever the worker is."""
    app, lossy.loses, lossy.loss = limited(lossy, "allow"), True, SystemExit(1)
    with pytest.raises(SystemExit):
        app.test_client().get("/")
    assert lossy.held == 0


def test_giving_back_what_was_never_held_ends_no_outage(lossy: Lossy) -> None:
    """A server that takes no writes does that without an error, since there is nothing to write."""
    app, lossy.readonly = limited(lossy, "allow"), True
    told: list[str] = []

    def note(sender: Flask, **_: Any) -> None:
        told.append("recovered")

    with store_recovered.connected_to(note, app), app.test_client().get("/"):
        pass
    assert (lossy.settled, told) == (1, [])


def test_a_slot_that_cannot_be_given_back_is_no_error(lossy: Lossy) -> None:
    app = limited(lossy, "deny")
    response = app.test_client().get("/")
    lossy.away = True
    response.close()
    assert (response.status_code, lossy.held) == (200, 1)


def test_an_inner_block_whose_answer_was_lost_does_not_free_the_outer_one(lossy: Lossy) -> None:
    app = Flask("app")
    app.config["BUCKET_RECOVERY_INTERVAL"] = 1e-9
    limiter = Limiter(app, redis=lossy)
    block = limiter.limit("4 at once", scope="export")

    @app.get("/blocks")
    def view() -> Any:
        with block:
            lossy.loses = True
            with block:
                lossy.loses = False
            return [lossy.held]

    assert app.test_client().get("/blocks").json == [1]
    assert lossy.held == 0


# The stores between.


def test_a_refusal_for_want_of_a_slot_is_never_remembered(lossy: Lossy) -> None:
    client = limited(lossy, "allow", "1 at once").test_client()
    with client.get("/"):
        assert statuses(client, "/", 2) == [429, 429]
    assert client.get("/").status_code == 200


def test_a_remembered_refusal_of_a_rate_gives_slots_back(lossy: Lossy) -> None:
    app = Flask("app")
    limiter = Limiter(app, redis=lossy, application_limits="9 at once")
    app.add_url_rule("/", "view", limiter.limit("1/hour")(lambda: "fine"))
    assert statuses(app.test_client(), "/", 4) == [200, 429, 429, 429]
    assert lossy.held == 0


@pytest.mark.parametrize(("rate", "expected"), [("1000/second", 200), ("1/hour", 429)])
def test_slots_are_asked_for_beside_leases(lossy: Lossy, rate: str, expected: int) -> None:
    app = Flask("app")
    app.config |= {"BUCKET_LEASE": 0.1, "BUCKET_WORKERS": 1}
    limiter = Limiter(app, redis=lossy, application_limits=[rate, "5 at once"])
    app.add_url_rule("/", "view", limiter.limit("2 at once")(lambda: "fine"))
    assert statuses(app.test_client(), "/", 9)[-1] == expected
    assert lossy.held == 0
