"""Limiter: the extension object. A request's way through it reads from top to bottom."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from flask import Flask, Request, Response, has_request_context, request
from flask.signals import got_request_exception
from werkzeug.exceptions import HTTPException

from .answers import BreachAnswered, LimiterUnavailable, RateLimitExceeded
from .bills import Bill, Point
from .config import Config
from .decisions import Decision
from .decorators import Breach, Decorators, Key
from .errors import ConfigError
from .headers import STYLES, whole_seconds
from .keys import KeyFunc, Spelling, client_address
from .manual import Manual
from .plans import Planner
from .registry import Decoration
from .rules import RuleSource, make_rules, plain, rules_set
from .signals import limit_exceeded, store_recovered, store_unavailable
from .state import AppState, Exchange, make_store, state_of

#: Where a request remembers which outcome its headers tell of, over all Limiters.
SHOWN = "_flask_bucket_shown"

#: Where a request remembers that one of its Limiters refused it.
REFUSED = "_flask_bucket_refused"


class Limiter(Decorators, Manual):
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
        Manual.__init__(self, name)
        has_async = any(map(inspect.iscoroutinefunction, (key_func, on_breach)))
        Decorators.__init__(self, has_async=has_async)
        self._key_func: KeyFunc = plain(key_func)
        self._default = make_rules(default_limits)
        self._application = make_rules(application_limits)
        self._redis = redis
        self._on_breach = None if on_breach is None else plain(on_breach)
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
        if not isinstance(app, Flask):
            raise ConfigError(
                f"{app!r} is not a Flask application. Expected Limiter(app, key_func=...): the "
                "application first, everything else by name."
            )
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
            app.before_request(lambda: self._before_request(state))
        except AssertionError as error:  # Flask's, for what comes after the first request
            raise RuntimeError(
                f"The application {app.name!r} has handled a request already, and that one had no "
                "limits. Call limiter.init_app(app) where the application is made."
            ) from error
        app.after_request(lambda response: self._after_request(state, response))
        got_request_exception.connect(self._on_crash, app)
        states[self.name] = state

    # The way of a request.

    def _before_request(self, state: AppState) -> None:
        """Charge what applies before the view: application, blueprint and default limits."""
        if not self._is_on(state):
            return
        exchange = state.begin(request._get_current_object(), self._slot)  # type: ignore[attr-defined]  # a proxy
        if self._filters and any(passes() for passes in self._filters):
            exchange.skipped = True
        else:
            self._charge(state, exchange, exchange.plan.before)

    def _at_decorator(self, decoration: Decoration) -> None:
        """Charge what applies where a decorator stands among the view's decorators."""
        if self._enabled is False or not has_request_context():
            return  # limits are for requests, and the function may be called from elsewhere
        req: Request = request._get_current_object()  # type: ignore[attr-defined]  # a proxy
        state, exchange = req.__dict__.get(self._slot) or (state_of(self.name), None)
        if exchange is None:
            if not self._is_on(state):
                return
            exchange = state.begin(req, self._slot)
        if exchange.skipped:
            return
        point = exchange.plan.at.get(decoration)
        if point is None:
            point = state.planner.stray(decoration, req.endpoint, req.method)
        if req.method == "OPTIONS" and is_preflight(req):
            point = Point(tuple(b for b in point.bounds if b.rule.methods is not None))
        self._charge(state, exchange, point)

    def _charge(self, state: AppState, exchange: Exchange, point: Point) -> None:
        """Charge all that applies at one point, in one call of the store; raise a refusal."""
        bill = state.bills.bill(point) if point.bounds else None
        if bill is None:
            return
        decision = state.store.take(bill.charges, exchange.held, bill.shadow)
        exchange.record(decision, bill)
        if bill.shadow and any(o.shadow and not o.allowed for o in decision.outcomes):
            state.would_refuse(decision)
            if decision.allowed:
                limit_exceeded.send(state.app, limiter=self, decision=decision)
        if not decision.allowed:
            raise self._refusal(state, decision, bill)

    def _refusal(self, state: AppState, decision: Decision, bill: Bill) -> HTTPException:
        """Return what a refused request is answered with."""
        request.__dict__[REFUSED] = True
        error_format = state.config.error_format
        outcome = decision.binding
        if outcome is None:
            return LimiterUnavailable(
                "the store is out of reach", decision.retry_after, error_format
            )
        limit_exceeded.send(state.app, limiter=self, decision=decision)
        rule = next(bound.rule for charge, bound in bill.asked if charge.key == outcome.key)
        on_breach = rule.on_breach or self._on_breach
        if on_breach is not None:
            said = on_breach(decision)
            if said is not None:
                response = state.app.make_response(said)
                if isinstance(said, (str, bytes, dict, list)):
                    response.status_code = 429  # a body alone says nothing about the status
                return BreachAnswered(response)
        message = rule.error_message() if callable(rule.error_message) else rule.error_message
        text = None if message is None else str(message)  # a translation may be a lazy text
        return RateLimitExceeded(decision, text, error_format)

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
        headers = response.headers
        if not decision.allowed:
            headers["Cache-Control"] = "no-store"
            if decision.retry_after is not None:
                headers.setdefault("Retry-After", str(whole_seconds(decision.retry_after)))
        outcome = None if decision.degraded else decision.binding
        shown = req.__dict__.get(SHOWN)
        if outcome is not None and (shown is None or outcome.binds_more_than(shown)):
            req.__dict__[SHOWN] = outcome
            for style in state.config.headers:
                for name, value in STYLES[style](decision, outcome):
                    headers[name] = value
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


def is_preflight(req: Request) -> bool:
    """Return whether a browser only asks whether it may send a request.

    One that is refused for its rate fails the request behind it for no reason that the page
    could read. A limit that names OPTIONS among its methods counts these too.
    """
    return req.method == "OPTIONS" and "Access-Control-Request-Method" in req.headers
