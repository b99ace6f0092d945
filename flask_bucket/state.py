"""What the extension keeps: for each application, and for each request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flask import Flask, Request, Response, current_app

from .bills import Asked, Bill, Bills
from .config import Config
from .decisions import Charge, Decision
from .errors import ConfigError
from .keys import Spelling, spelled, tail
from .limits import Limit
from .plans import Plan, Planner
from .rules import BoundRule, checked_cost, checked_key
from .stores.base import Store, innermost
from .stores.memory import MemoryStore
from .stores.outage import OutageStore, Policy
from .stores.redis import RedisStore
from .stores.refusals import RefusalStore

logger = logging.getLogger("flask_bucket")


@dataclass(slots=True)
class Exchange:
    """One request: what it was charged so far, and what was decided."""

    plan: Plan
    #: Whether a request filter let it pass without any limit.
    skipped: bool = False
    decision: Decision | None = None
    #: What was taken from buckets, and is given back if the request is refused after all.
    taken: list[Asked] = field(default_factory=list)
    #: The real cost, if the view said it.
    real_cost: int | None = None
    #: Whether the view raised an exception that nobody handled.
    crashed: bool = False
    #: Whether another Limiter refused the request: then it is to pay nothing here either.
    refused_elsewhere: bool = False
    #: Whether any of the tokens taken are given back as a rule.
    returns: bool = False
    #: What each deduct_when said about the response.
    verdicts: dict[BoundRule, bool] = field(default_factory=dict)

    @property
    def held(self) -> Sequence[Charge]:
        """What a refusal from now on gives back."""
        return [charge for charge, _ in self.taken] if self.taken else ()

    def record(self, decision: Decision, bill: Bill) -> None:
        """Note what was decided about all that was asked for at one point."""
        if not decision.allowed:
            self.taken.clear()  # given back in the same call
            self.decision = decision
            return
        if not decision.degraded:  # what the store did not take must not be given back to it
            asked, outcomes = bill.asked, decision.outcomes
            if bill.shadow:
                asked = tuple(a for a, o in zip(asked, outcomes, strict=True) if o.allowed)
            self.taken += asked
            self.returns = self.returns or bill.returns
        self.decision = decision if self.decision is None else self.decision.followed_by(decision)

    def corrections(self, response: Response | None) -> list[Charge]:
        """Return what is to be settled, now that more is known; each call returns what is new.

        :param response: what the request is answered with; None once that was judged.
        """
        corrections: list[Charge] = []
        if self.real_cost is None and not self.refused_elsewhere and not self.returns:
            return corrections
        for i, (charge, bound) in enumerate(self.taken):
            cost = charge.cost
            if self.real_cost is not None and self._settles(bound):
                cost = self.real_cost
            if self.refused_elsewhere or not self._deducts(bound, response):
                cost = 0
            if cost != charge.cost:
                corrections.append(Charge(charge.limit, charge.key, cost - charge.cost))
                self.taken[i] = (Charge(charge.limit, charge.key, cost), bound)
        if corrections and self.decision is not None:
            self.decision = self.decision.settled(corrections)
        return corrections

    def _deducts(self, bound: BoundRule, response: Response | None) -> bool:
        """Return whether a rule keeps its tokens: asked once, and a crash keeps them."""
        deduct_when = bound.rule.deduct_when
        if deduct_when is None or self.crashed:
            return True
        if response is not None and bound not in self.verdicts:
            self.verdicts[bound] = _checked_verdict(deduct_when(response), deduct_when)
        return self.verdicts.get(bound, True)

    def _settles(self, bound: BoundRule) -> bool:
        """Return whether the real cost is this limit's, or it counts requests.

        Those with a cost of their own measure something. Where none has one, all do but the
        application's: 10/minute beside a budget of tokens is not to be charged hundreds.
        """
        if any(b.rule.cost != 1 for _, b in self.taken):
            return bound.rule.cost != 1
        return bound.source != "application" or all(
            b.source == "application" for _, b in self.taken
        )


def _checked_verdict(verdict: object, deduct_when: Callable[..., Any]) -> bool:
    if not isinstance(verdict, bool):
        raise ConfigError(
            f"deduct_when ({getattr(deduct_when, '__qualname__', deduct_when)}) returned "
            f"{verdict!r}; expected True to keep the tokens, or False to give them back."
        )
    return verdict


@dataclass(slots=True)
class AppState:
    """One Limiter at work in one application."""

    app: Flask
    config: Config
    store: Store
    planner: Planner
    spelling: Spelling
    bills: Bills = field(init=False)
    #: When a dry-run refusal was last logged, in monotonic seconds.
    dry_run_logged: float = float("-inf")
    #: Whether the first request was looked at for signs of a wrong set-up.
    looked: bool = False

    def __post_init__(self) -> None:
        self.bills = Bills(self.spelling)

    def begin(self, request: Request, slot: str) -> Exchange:
        """Begin a request's exchange, or return it if a decorated hook began it already.

        It is kept on the request itself: an application context, and ``g`` with it, may be
        shared by several requests.
        """
        if not self.looked:
            self._look(request)
        begun: tuple[AppState, Exchange] | None = request.__dict__.get(slot)
        if begun is not None:
            return begun[1]
        exchange = Exchange(self.planner.plan(request.endpoint, request.method))
        request.__dict__[slot] = (self, exchange)
        return exchange

    def charge(self, limit: Limit | str, key: str, cost: int, scope: str) -> Charge:
        """Return the charge of a bucket that no rule names."""
        if not isinstance(scope, str) or not scope:
            raise ConfigError(f"A scope is a text that is not empty, not {scope!r}.")
        limit = Limit.parse(limit) if isinstance(limit, str) else limit
        if not isinstance(limit, Limit):
            raise ConfigError(f"{limit!r} is not a limit. Expected a Limit, or a text for one.")
        behind = tail(spelled(scope), limit.name)
        return Charge(limit, self.spelling.begin(self.client(key)) + behind, checked_cost(cost))

    def client(self, key: str) -> str:
        """Return a client that was named by hand, if it is one; not spelled yet."""
        client = checked_key(key, "the call")
        if client is None:
            raise ConfigError("A client's key is a text, not None: nobody else has its buckets.")
        return client

    def peek(self, charge: Charge) -> Decision:
        """Return what charging a bucket by hand would answer."""
        decision = self.store.peek([charge])
        if not self.config.dry_run:
            return decision
        shadows = tuple(replace(outcome, shadow=True) for outcome in decision.outcomes)
        return replace(decision, allowed=True, outcomes=shadows, retry_after=0.0)

    def would_refuse(self, decision: Decision) -> None:
        """Log what a dry-run limit would have refused, at most once a second."""
        now = time.monotonic()
        if now - self.dry_run_logged >= 1:
            self.dry_run_logged = now
            names = [str(o.limit) for o in decision.outcomes if o.shadow and not o.allowed]
            logger.warning("Dry run: %s would have refused a request.", " and ".join(names))

    def _look(self, request: Request) -> None:
        self.looked = True
        environ = request.environ
        if isinstance(innermost(self.store), MemoryStore) and environ.get("wsgi.multiprocess"):
            logger.warning(
                "Buckets are kept in this process, and there are several: each grants every "
                "limit again. Set BUCKET_REDIS_URL (FLASK_BUCKET_REDIS_URL in the environment)."
            )
        if "HTTP_X_FORWARDED_FOR" in environ and "werkzeug.proxy_fix.orig" not in environ:
            logger.warning(
                "A request came with X-Forwarded-For, which is not read: if a proxy of yours wrote "
                "it, all clients behind that share its address. Apply "
                "werkzeug.middleware.proxy_fix.ProxyFix to the application."
            )


def make_store(
    config: Config,
    redis: object,
    key_prefix: str,
    on_outage: Callable[[str], object],
    on_recovery: Callable[[], object],
) -> Store:
    """Make the store that the settings ask for, or the one given to the constructor.

    :raises ConfigError: if it is neither a URL, a client of Redis nor a store.
    """
    given = redis if config.redis_url is None else config.redis_url
    store: Store
    if given is None or given == "memory://":
        return MemoryStore()
    if isinstance(given, MemoryStore):
        return given
    if isinstance(given, str):
        store = RedisStore.from_url(
            given,
            timeout=config.timeout,
            max_connections=config.max_connections,
            key_prefix=key_prefix,
            **config.redis_options,
        )
    elif isinstance(given, Store):
        store = given
    elif callable(getattr(given, "execute_command", None)):
        store = RedisStore(given, key_prefix)  # type: ignore[arg-type]  # a client, as redis-py has it
    else:
        raise ConfigError(
            f"redis is a URL, a client of redis-py or a store, not {given!r}. For one process "
            "alone, leave it out."
        )
    policy: Policy = config.on_error  # type: ignore[assignment]  # checked when it was loaded
    guarded = OutageStore(
        store,
        policy,
        recovery_interval=config.recovery_interval,
        local_share=config.local_share,
        on_outage=on_outage,
        on_recovery=on_recovery,
    )
    return RefusalStore(guarded, config.refusal_cache) if config.refusal_cache else guarded


def state_of(name: str) -> AppState:
    """Return the state of the Limiter of this name in the current application.

    :raises RuntimeError: if ``init_app`` was not called for it.
    """
    states: dict[str, AppState] = current_app.extensions.get("flask_bucket", {})
    if name not in states:
        raise RuntimeError(
            f"The Limiter {name!r} does not know the application {current_app.name!r}, so its "
            "limits would not hold. Call limiter.init_app(app) where the application is made."
        )
    return states[name]
