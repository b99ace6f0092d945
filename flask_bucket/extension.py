"""Limiter: the extension object. A request's way through it reads from top to bottom."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

from flask import (
    Blueprint,
    Flask,
    Request,
    Response,
    abort,
    has_app_context,
    has_request_context,
    request,
)
from flask.signals import got_request_exception
from flask.typing import ResponseReturnValue
from werkzeug.exceptions import HTTPException

from .config import Config
from .decisions import Decision
from .errors import ConfigError, RateLimitExceeded, StoreUnavailable
from .headers import STYLES, whole_seconds
from .keys import KeyFunc, Spelling, client_address
from .limits import Limit, Number
from .plans import Decoration, Planner, Registry
from .rules import (
    BoundRule,
    Rule,
    RuleSource,
    checked_cost,
    make_rule,
    make_rules,
    plain,
    rules_set,
)
from .signals import limit_exceeded, store_recovered, store_unavailable
from .state import AppState, Asked, Exchange, make_store, state_of
from .stores.outage import Health, health_of

Target = TypeVar("Target", bound="Callable[..., Any] | Blueprint")
Filter = TypeVar("Filter", bound=Callable[[], bool | Awaitable[bool]])

# What users' functions return. Each may be async, and on_breach answers as a view does.
Key = str | None | Awaitable[str | None]
Breach = Callable[[Decision], ResponseReturnValue | Awaitable[ResponseReturnValue | None] | None]

#: Where a request remembers which outcome its headers tell of, over all Limiters.
SHOWN = "_flask_bucket_shown"

#: Where a request remembers that one of its Limiters refused it.
REFUSED = "_flask_bucket_refused"


class Limiter:
    """Limits request rates with token buckets.

    :param app: the application; or call :meth:`init_app` later, for one or several.
    :param key_func: returns the client of the current request as a text, or None to leave the
        request out. By default its address.
    :param default_limits: for each endpoint that has no limits of its own: a text, a Limit, a
        list of these, or a function that returns one of them.
    :param application_limits: for the application as a whole, over all endpoints.
    :param redis: where the buckets are kept: a URL, a client of redis-py, or a store. By
        default, and in development, in this process.
    :param on_breach: called with the Decision when a limit refuses; may return a response.
    :param name: tells several Limiters of one application apart; part of the keys.
    :raises ConfigError: for a limit, or anything else, that is not what was expected.

    >>> from flask import Flask
    >>> app = Flask(__name__)
    >>> limiter = Limiter(app)
    >>> @app.get("/search")
    ... @limiter.limit("5/second", burst=20)
    ... def search():
    ...     return "found"
    >>> app.test_client().get("/search").headers["X-RateLimit-Remaining"]
    '19'
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        key_func: Callable[[], Key] = client_address,
        default_limits: RuleSource | Iterable[RuleSource] = (),
        application_limits: RuleSource | Iterable[RuleSource] = (),
        redis: object = None,
        on_breach: Breach | None = None,
        name: str = "bucket",
    ) -> None:
        if not callable(key_func) or not (on_breach is None or callable(on_breach)):
            raise ConfigError(
                f"key_func and on_breach are functions, not {key_func!r} and {on_breach!r}."
            )
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", name):
            raise ConfigError(
                f"A Limiter's name is a letter, then letters, digits, '_', '.' and '-', "
                f"not {name!r}. It is part of the keys."
            )
        self.name = name
        self._key_func: KeyFunc = plain(key_func)
        self._has_async = any(map(inspect.iscoroutinefunction, (key_func, on_breach)))
        self._default = make_rules(default_limits)
        self._application = make_rules(application_limits)
        self._redis = redis
        self._on_breach = None if on_breach is None else plain(on_breach)
        self._registry = Registry()
        self._filters: list[Callable[[], bool]] = []
        self._enabled: bool | None = None
        self._slot = f"_flask_bucket_{name}"
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit an application, as its configuration says. Connects to nothing yet.

        Each key can be set in the environment by ``app.config.from_prefixed_env()``, with
        ``FLASK_`` before it; a key that is set wins over the constructor's argument.

        ========================= ================ ==============================================
        BUCKET_ENABLED            True             False: no hook does anything
        BUCKET_REDIS_URL          None             where the buckets are; unset: in this process
        BUCKET_REDIS_OPTIONS      {}               further arguments for redis-py's connections
        BUCKET_KEY_PREFIX         "bucket"         what every key begins with
        BUCKET_KEY_SECRET         None             store clients only as digests keyed with this
        BUCKET_DEFAULT_LIMITS     ()               limits of endpoints without their own
        BUCKET_APPLICATION_LIMITS ()               limits over the whole application
        BUCKET_EXEMPT_METHODS     ("OPTIONS",)     free of all limits but those on views
        BUCKET_IPV6_PREFIX        64               leading bits of an IPv6 address in a client
        BUCKET_TIMEOUT            0.1              seconds to connect, and for each reply
        BUCKET_MAX_CONNECTIONS    50               in each process
        BUCKET_ON_ERROR           "allow"          during an outage: allow, deny, local
        BUCKET_RECOVERY_INTERVAL  1.0              seconds between tries during an outage
        BUCKET_LOCAL_SHARE        1.0              part of each limit a worker grants when local
        BUCKET_REFUSAL_CACHE      10000            refusals remembered in each process; 0: none
        BUCKET_HEADERS            ("x-ratelimit",) any of x-ratelimit, ietf
        BUCKET_ERROR_FORMAT       "json"           body of a refusal: json, problem
        BUCKET_DRY_RUN            False            report what limits would refuse, refuse nothing
        ========================= ================ ==============================================

        :raises ConfigError: for a value that is not one, and for an unknown ``BUCKET_`` key.
        :raises RuntimeError: if the application has a Limiter of this name already, or has
            handled a request, so that it takes no more hooks.
        """
        states: dict[str, AppState] = app.extensions.setdefault("flask_bucket", {})
        if self.name in states:
            raise RuntimeError(
                f"The application {app.name!r} has a Limiter named {self.name!r} already. "
                "Give a second one another name: Limiter(app, name='api')."
            )
        config = Config.load(app.config)
        prefix = config.key_prefix + ("" if self.name == "bucket" else f"/{self.name}")
        state = AppState(
            app=app,
            config=config,
            store=make_store(
                config,
                self._redis,
                prefix,
                lambda reason: store_unavailable.send(app, limiter=self, reason=reason),
                lambda: store_recovered.send(app, limiter=self),
            ),
            planner=Planner(
                app,
                self._registry,
                key_func=self._key_func,
                default=rules_set("BUCKET_DEFAULT_LIMITS", config.default_limits, self._default),
                application=rules_set(
                    "BUCKET_APPLICATION_LIMITS", config.application_limits, self._application
                ),
                exempt_methods=config.exempt_methods,
                dry_run=config.dry_run,
            ),
            spelling=Spelling(prefix, config.key_secret),
        )
        try:
            app.before_request(partial(self._before_request, state))
        except AssertionError as error:  # Flask's, for what comes after the first request
            raise RuntimeError(
                f"The application {app.name!r} has handled a request already, and that one had no "
                "limits. Call limiter.init_app(app) where the application is made."
            ) from error
        app.after_request(partial(self._after_request, state))
        got_request_exception.connect(self._on_crash, app)
        states[self.name] = state

    # The way of a request.

    def _before_request(self, state: AppState) -> None:
        """Charge what applies before the view: application, blueprint and default limits."""
        if not self._is_on(state):
            return
        exchange = state.begin(request._get_current_object(), self._slot)  # type: ignore[attr-defined]  # a proxy
        if any(passes() for passes in self._filters):
            exchange.skipped = True
        elif exchange.plan.before:
            self._charge(state, exchange, exchange.plan.before)

    def _at_decorator(self, decoration: Decoration) -> None:
        """Charge what applies where a decorator stands among the view's decorators."""
        if self._enabled is False or not has_request_context():
            return  # a decorated function may be called from elsewhere: limits are for requests
        req: Request = request._get_current_object()  # type: ignore[attr-defined]  # a proxy
        state, exchange = req.__dict__.get(self._slot) or (state_of(self.name), None)
        if exchange is None:
            if not self._is_on(state):
                return
            exchange = state.begin(req, self._slot)
        if exchange.skipped:
            return
        bounds = exchange.plan.at.get(decoration)
        if bounds is None:
            bounds = state.planner.stray(decoration, req.endpoint, req.method)
        if is_preflight(req):
            bounds = [bound for bound in bounds if bound.rule.methods is not None]
        if bounds:
            self._charge(state, exchange, bounds)

    def _charge(self, state: AppState, exchange: Exchange, bounds: Sequence[BoundRule]) -> None:
        """Charge all that applies at one point, in one call of the store."""
        clients: dict[KeyFunc, str | None] = {}
        enforced: list[Asked] = []
        dry: list[Asked] = []
        for bound in bounds:
            for charge in bound.charges(state.spelling, clients):
                (dry if bound.shadow else enforced).append((charge, bound))
        if not enforced and not dry:
            return
        decision = state.store.take(
            [charge for charge, _ in enforced],
            [charge for charge, _ in exchange.taken],
            [charge for charge, _ in dry],
        )
        exchange.record(decision, [*enforced, *dry])
        if dry and any(o.shadow and not o.allowed for o in decision.outcomes):
            state.would_refuse(decision)
            if decision.allowed:
                limit_exceeded.send(state.app, limiter=self, decision=decision)
        if not decision.allowed:
            self._refuse(state, decision, enforced)

    def _refuse(self, state: AppState, decision: Decision, asked: Sequence[Asked]) -> None:
        """Raise what a refused request is answered with."""
        request.__dict__[REFUSED] = True
        error_format = state.config.error_format
        outcome = decision.binding
        if outcome is None:
            raise StoreUnavailable("the store is out of reach", decision.retry_after, error_format)
        limit_exceeded.send(state.app, limiter=self, decision=decision)
        rule = next(bound.rule for charge, bound in asked if charge.key == outcome.key)
        on_breach = rule.on_breach or self._on_breach
        if on_breach is not None:
            answer = on_breach(decision)
            if answer is not None:
                abort(state.app.make_response(answer))
        message = rule.error_message() if callable(rule.error_message) else rule.error_message
        text = None if message is None else str(message)  # a translation may be a lazy text
        raise RateLimitExceeded(decision, text, error_format)

    def _after_request(self, state: AppState, response: Response) -> Response:
        """Give back what need not be paid, settle the rest, and tell the client."""
        req: Request = request._get_current_object()  # type: ignore[attr-defined]  # a proxy
        _, exchange = req.__dict__.get(self._slot, (None, None))
        if exchange is None or exchange.decision is None:
            return response
        if exchange.taken:
            exchange.refused_elsewhere = REFUSED in req.__dict__
            self._settle(state, exchange, response)
            if response.is_streamed:
                # Its body, and what that costs, is still to come.
                response.call_on_close(partial(self._settle, state, exchange, None))
        decision: Decision = exchange.decision
        if not decision.allowed:
            response.headers["Cache-Control"] = "no-store"
            if decision.retry_after is not None:
                wait = str(whole_seconds(decision.retry_after))
                response.headers.setdefault("Retry-After", wait)
        outcome = None if decision.degraded else decision.binding
        shown = req.__dict__.get(SHOWN)
        if outcome is not None and (shown is None or outcome.binds_more_than(shown)):
            req.__dict__[SHOWN] = outcome
            for style in state.config.headers:
                response.headers.update(STYLES[style](decision, outcome))
        return response

    def _settle(self, state: AppState, exchange: Exchange, response: Response | None) -> None:
        corrections = exchange.corrections(response)
        if corrections:
            state.store.settle(corrections)

    def _on_crash(self, app: Flask, exception: BaseException | None = None, **_: Any) -> None:
        """Note an exception that nobody handled: what the request was charged stays taken."""
        if isinstance(exception, HTTPException):
            return  # an answer such as abort(401), of which Flask-RESTful tells as well
        if has_request_context() and self._slot in request.__dict__:
            request.__dict__[self._slot][1].crashed = True

    def _is_on(self, state: AppState) -> bool:
        return state.config.enabled if self._enabled is None else self._enabled

    # What users of the extension say.

    def limit(
        self,
        rule: RuleSource | None = None,
        *,
        burst: int | None = None,
        capacity: Number | None = None,
        refill_rate: Number | None = None,
        per: Number = 1,
        key_func: Callable[[], Key] | None = None,
        scope: str | None = None,
        name: str | None = None,
        per_method: bool = False,
        methods: Collection[str] | None = None,
        cost: int | Callable[[], int | Awaitable[int]] = 1,
        exempt_when: Callable[[], bool | Awaitable[bool]] | None = None,
        deduct_when: Callable[[Response], bool | Awaitable[bool]] | None = None,
        override_defaults: bool = True,
        error_message: str | Callable[[], str | Awaitable[str]] | None = None,
        on_breach: Breach | None = None,
        dry_run: bool = False,
    ) -> Callable[[Target], Target]:
        """Limit a view, a method of a MethodView, any function, or a Blueprint.

        A decorator charges where it stands: put those that may turn a request away for another
        reason, such as ``@login_required``, above it. Stacked limits are one call. All functions
        given may be ``async``.

        :param rule: a text such as ``"5/second burst 20"``, a Limit, a list of these, or a
            function that returns one of them, or None for no limit now.
        :param burst: the capacity, for a text that says none.
        :param capacity: instead of `rule`, with `refill_rate` and `per` (seconds): see
            :class:`~flask_bucket.Limit`.
        :param key_func: who the client is, if not by the Limiter's own.
        :param scope: limits with the same scope and name share a bucket, over all endpoints. A
            view's own scope is its endpoint, so that the name of one shares its view's buckets.
        :param name: identifies the limit in its scope; by default its period in words.
        :param per_method: count each method for itself.
        :param methods: the methods that this is for; by default all.
        :param cost: tokens, or a function that returns them. What costs more than the capacity
            is refused for ever, and what costs nothing is always allowed.
        :param exempt_when: if it returns True, this limit leaves the request out.
        :param deduct_when: called with the response; if it returns False, the tokens, which
            were taken up front, are given back.
        :param override_defaults: False keeps blueprints' and default limits in force beside this.
        :param error_message: the text of a refusal, or a function that returns it.
        :param on_breach: called with the Decision on a refusal; may return a response.
        :param dry_run: report what this would refuse, and refuse nothing.
        :raises ConfigError: for anything that is not what was expected.
        """
        made = make_rule(
            rule,
            burst=burst,
            capacity=capacity,
            refill_rate=refill_rate,
            per=per,
            key_func=key_func,
            scope=scope,
            name=name,
            per_method=per_method,
            methods=methods,
            cost=cost,
            exempt_when=exempt_when,
            deduct_when=deduct_when,
            override_defaults=override_defaults,
            error_message=error_message,
            on_breach=on_breach,
            dry_run=dry_run,
        )
        return partial(self._decorate, made)

    def shared_limit(self, rule: RuleSource, scope: str, **same: Any) -> Callable[[Target], Target]:
        """Limit several endpoints with one bucket for all of them; see :meth:`limit`."""
        if not isinstance(scope, str) or not scope:
            raise ConfigError(f"A scope is a text that is not empty, not {scope!r}.")
        return self.limit(rule, scope=scope, **same)

    def exempt(self, target: Target) -> Target:
        """Free a view or a Blueprint of application, blueprint and default limits.

        A limit on the view itself counts all the same. Usable as a decorator, at any place.
        """
        if not isinstance(target, Blueprint) and not is_function(target):
            raise ConfigError(
                f"Views and Blueprints can be exempted, not {target!r}. For a class, exempt its "
                "methods, or put limiter.exempt into its list of decorators; an application as a "
                "whole is free with BUCKET_ENABLED = False."
            )
        self._registry.exempt_from_now(target)
        return target

    def request_filter(self, passes: Filter) -> Filter:
        """Register a function that lets a request pass without any limit by returning True."""
        if not callable(passes):
            raise ConfigError(f"A request filter is a function, not {passes!r}.")
        self._filters.append(plain(passes))
        return passes

    def _decorate(self, rule: Rule, target: Target) -> Target:
        if isinstance(target, Blueprint):
            self._registry.limit_blueprint(target, rule)
            return target
        if not is_function(target):
            raise ConfigError(
                f"A limit decorates a function or a Blueprint, not {target!r}. For a class, "
                "decorate its methods, or put the limit into its list of decorators; for an "
                "application, set application_limits or default_limits."
            )
        function, rules = self._registry.undecorated(target)
        rules = (*rules, rule)
        decoration: Decoration

        if inspect.iscoroutinefunction(function):
            is_async = self._has_async or any(rule.has_async for rule in rules)

            @wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                if is_async:
                    # Functions that must be awaited cannot be, in the thread of a running loop.
                    await asyncio.to_thread(self._at_decorator, decoration)
                else:
                    self._at_decorator(decoration)
                return await function(*args, **kwargs)
        else:

            @wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                self._at_decorator(decoration)
                return function(*args, **kwargs)

        decoration = self._registry.decorated(wrapper, function, rules)
        return wrapper  # type: ignore[return-value]  # it stands in for its function

    def consume(
        self, limit: Limit | str, key: str, cost: int = 1, scope: str = "manual"
    ) -> Decision:
        """Charge a bucket that belongs to no view, and return what was decided.

        Works wherever there is an application context: in a view, a task, a command.

        :param limit: a Limit, or a text for one.
        :param key: the client.
        :param cost: tokens; 0 looks without taking.
        :param scope: sets buckets of the same client apart.
        :raises ConfigError: for a limit, a key or a cost that is none.
        """
        state = state_of(self.name)
        charge = state.charge(limit, key, cost, scope)
        if not self._is_on(state):
            return Decision(True)
        if state.config.dry_run:
            return state.store.take((), (), [charge])
        return state.store.take([charge])

    def peek(self, limit: Limit | str, key: str, cost: int = 1, scope: str = "manual") -> Decision:
        """Return what :meth:`consume` would answer, taking nothing."""
        state = state_of(self.name)
        charge = state.charge(limit, key, cost, scope)
        if not self._is_on(state):
            return Decision(True)
        return state.peek(charge)

    def reset(self, client: str) -> int:
        """Forget all buckets of a client, so that they are full; return how many there were.

        :param client: as the key function returns it, such as ``"2001:db8::/64"``.
        :raises StoreUnavailable: if the store cannot be reached.
        """
        state = state_of(self.name)
        return state.store.reset(state.spelling.client(state.client(client)))

    def health(self) -> Health:
        """Return how the store does, for a health endpoint: no call is made for it.

        Its ``state`` is ``"ok"``, ``"degraded"`` (BUCKET_ON_ERROR decides) or ``"recovering"``.
        A degraded limiter is no reason to restart the application: it goes on by itself.
        """
        return health_of(state_of(self.name).store)

    def settle(self, cost: int) -> None:
        """Say what the current request really cost, once that is known.

        The limits that its view was charged are corrected by the difference, in one call after
        the response; a debt is possible. If some of them were written with a `cost`, only these:
        the others count requests. While a response is streamed, this works as well.

        :param cost: tokens, in place of the cost that was charged.
        :raises ConfigError: for a cost that is none.
        """
        checked_cost(cost)
        _, exchange = request.__dict__.get(self._slot, (None, None))
        if exchange is not None:
            exchange.real_cost = cost

    @property
    def current(self) -> Decision | None:
        """What was decided about the current request; None if no limit applied."""
        if not has_request_context():
            return None
        _, exchange = request.__dict__.get(self._slot, (None, None))
        return exchange.decision if exchange is not None else None

    @property
    def enabled(self) -> bool:
        """Whether limits hold: as ``BUCKET_ENABLED`` says, until this is assigned to."""
        if self._enabled is None and has_app_context():
            return state_of(self.name).config.enabled
        return self._enabled is not False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._enabled = bool(value)


def is_function(target: object) -> bool:
    """Return whether a target may stand for a view: classes and applications are called too."""
    return callable(target) and not isinstance(target, (type, Flask))


def is_preflight(req: Request) -> bool:
    """Return whether a browser only asks whether it may send a request.

    One that is refused for its rate fails the request behind it for no reason that the page
    could read. A limit that names OPTIONS among its methods counts these too.
    """
    return req.method == "OPTIONS" and "Access-Control-Request-Method" in req.headers
