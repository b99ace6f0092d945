"""Enforcer: one Limiter in one application. Its methods follow a request from start to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flask import Flask, Request, Response, has_request_context, request
from flask.signals import got_request_exception
from werkzeug.exceptions import HTTPException

from .answers import (
    BreachAnswered,
    LimiterUnavailable,
    RateLimitExceeded,
    in_place_of,
    with_headers,
)
from .bills import Bill, Bills
from .bodies import is_sent_later
from .config import Config
from .current import current_request
from .decisions import Charge, Decision
from .decorators import BlueprintLimit, Decoration, Registry
from .endings import Endings
from .endpoints import handles_errors
from .exchange import Exchange, Exchanges, exchanges_of
from .first_request import warn_of_setup
from .headers import LISTING, styles, whole_seconds
from .keys import Spelling
from .planner import Planner
from .plans import BEFORE, Point
from .reports import Reports
from .rules import Rule
from .signals import store_recovered, store_unavailable
from .stores.base import Store, innermost
from .stores.memory import MemoryStore
from .stores.stack import stacked


class Enforcer:
    """Enforces the limits of one Limiter in one application.

    :param limiter: the Limiter, which its signals name.
    :param registry: the limits, exemptions and filters that were registered on it.
    :raises ConfigError: for a setting of the application that cannot be used.
    """

    def __init__(self, app: Flask, limiter: object, registry: Registry) -> None:
        self.app = app
        self.name = registry.name
        self.config = config = Config.load(app.config)
        prefix = config.key_prefix + ("" if self.name == "bucket" else f"/{self.name}")
        self.spelling = Spelling(prefix, config.key_secret)
        self.bills = Bills(self.spelling)
        self.store: Store = stacked(
            config,
            registry.redis,
            prefix,
            on_outage=lambda reason: store_unavailable.send(app, limiter=limiter, reason=reason),
            on_recovery=lambda: store_recovered.send(app, limiter=limiter),
        )
        self._reports = Reports(app, limiter)
        self._styles = styles(config.headers)
        lists = any(style in LISTING for style in self._styles)
        self._names_policies = lists or config.error_format == "problem"
        #: Whether limits hold in this application, if a test sets it.
        self.enabled: bool | None = None
        self._registry = registry
        self._first_seen = False
        self.planner = Planner(app, registry, config, hook := self.before_view)
        app.before_request(hook)
        app.after_request(self.after_view)
        self._endings = Endings(app, self.name, self._settle)
        # Needed under TRAP_HTTP_EXCEPTIONS, which Connexion sets. Else Flask answers it itself.
        app.register_error_handler(BreachAnswered, lambda error: error.answer)
        got_request_exception.connect(self._note_exception, app)

    @property
    def is_on(self) -> bool:
        """Whether limits hold: as ``BUCKET_ENABLED`` says, until ``limiter.enabled`` is set."""
        enabled = self._registry.enabled if self.enabled is None else self.enabled
        return self.config.enabled if enabled is None else enabled

    @property
    def filters(self) -> Sequence[Callable[[], bool]]:
        """The request filters."""
        return self._registry.filters

    # Before the view.

    def before_view(self) -> None:
        """Charge application and default limits, and those of blueprints whose hooks come next."""
        exchange = self._exchange()
        if exchange is None:
            return
        if (point := exchange.plan.at(BEFORE)) is not None:
            self._charge(exchange, point)

    def at_blueprint(self, limit: BlueprintLimit) -> None:
        """Charge a blueprint's limit where it stands among the blueprint's hooks."""
        exchange = self._exchange()
        if exchange is not None and (point := exchange.plan.at(limit)) is not None:
            self._charge(exchange, point)

    # At a decorator, or within the view.

    def at_decorator(self, decoration: Decoration) -> HTTPException | None:
        """Charge a decorated function where it is called.

        :returns: the refusal, if the function is an error handler: Flask would make a 500 of an
            exception that is raised there. Else None.
        """
        exchange = self._exchange()
        if exchange is None:
            return None
        point = exchange.plan.at(decoration) or exchange.plan.at_dispatch(decoration)
        if point is not None:
            self._charge(exchange, point)
            return None
        point = self.planner.unplanned(decoration, request.endpoint, request.method)
        try:
            self._charge(exchange, point)
        except HTTPException as refusal:
            if not handles_errors(self.app, decoration):
                raise
            return refusal
        return None

    def at_block(self, rules: Sequence[Rule]) -> None:
        """Charge the block of a ``with`` statement."""
        exchange = self._exchange()
        if exchange is None:
            return
        point = self.planner.block(rules, request.endpoint, request.method)
        self._charge(exchange, point)
        if exchange.holdings is not None:
            exchange.holdings.enter(rules, point)

    def after_block(self, rules: Sequence[Rule]) -> None:
        """Give back the slots that a block held."""
        exchange = exchanges_of(current_request()).by_limiter.get(self.name)
        holdings = None if exchange is None else exchange.holdings
        if holdings is not None and (left := holdings.leave(rules)):
            self.store.settle(left)

    # Every charge.

    def _exchange(self) -> Exchange | None:
        """Return the current request's exchange; None if limits are off or a filter let it pass."""
        if not self.is_on:
            return None
        req = current_request()
        exchanges = exchanges_of(req)
        exchange = exchanges.by_limiter.get(self.name)
        if exchange is None:
            exchange = exchanges.by_limiter.setdefault(self.name, self._begin(req, exchanges))
            # Here and not in our hook: an earlier hook may charge a block or a limited function.
            if filters := self._registry.filters:
                exchange.filtered = any(passes() for passes in filters)
        elif exchange.plan.method != req.method:  # changed by a hook
            exchange.plan = self.planner.plan(req.endpoint, req.method)
        return None if exchange.filtered else exchange

    def _begin(self, req: Request, exchanges: Exchanges) -> Exchange:
        """Begin a request's exchange."""
        if not self._first_seen:
            self._first_seen = True
            warn_of_setup(req, in_process=isinstance(innermost(self.store), MemoryStore))
        plan = self.planner.plan(req.endpoint, req.method)
        charged: dict[str, Charge] | None = {} if self._names_policies else None
        return Exchange(plan, exchanges.shared, charged=charged)

    def _charge(self, exchange: Exchange, point: Point) -> None:
        """Charge every limit that applies at one point, in one call of the store.

        :raises HTTPException: if the request is refused.
        """
        whole = self.bills.bill(point)
        if whole is None:
            return
        bill, held = whole, exchange.held(point)
        if whole.bans:
            bill, held = exchange.due(whole, held)
        charges: Sequence[Charge] = bill.charges
        shadow: Sequence[Charge] = bill.shadow
        if bill.asks_slots:
            charges, shadow = self._endings.holdings(exchange).ask(bill, point)
        decision = self.store.take(charges, held, shadow)
        exchange.record(decision, bill, point)
        if whole.bans and exchange.banning is not None:
            self._reports.banned(exchange.banning.note(decision, whole))
        if bill.shadow or bill.warns:
            self._reports.charged(decision, bill)
        if not decision.allowed:
            raise self._refusal(exchange, decision, whole, point)

    def _refusal(
        self, exchange: Exchange, decision: Decision, bill: Bill, point: Point
    ) -> HTTPException:
        """Return the exception that answers a refused request."""
        if point.ends_request:
            exchange.shared.refused = True
        error_format = self.config.error_format
        outcome = decision.binding
        if outcome is None:
            reason = "the store is out of reach"
            return LimiterUnavailable(reason, decision.retry_after, error_format)
        self._reports.refused(decision, outcome)
        bound = next(bound for charge, bound in bill.items if charge.key == outcome.key)
        on_breach = bound.on_breach or self._registry.on_breach
        answer = None if on_breach is None else on_breach(decision)
        if answer is not None:
            return BreachAnswered.by(self.app, answer)
        message = bound.error_message
        message = message() if callable(message) else message
        text = None if message is None else str(message)  # a translation may be a lazy text
        names: dict[str, str] = {}
        if error_format == "problem":
            policies = exchanges_of(current_request()).policies()
            names = {key: policy.name for key, policy in policies.items()}
        return RateLimitExceeded(decision, text, error_format, names)

    # By hand.

    def consume(self, charges: Sequence[Charge]) -> Decision:
        """Charge buckets that belong to no rule."""
        if not self.is_on:
            return Decision(True)
        if self.config.dry_run:
            return self.store.take((), (), charges)
        return self.store.take(charges)

    def peek(self, charges: Sequence[Charge]) -> Decision:
        """Return what consuming would answer, taking nothing."""
        if not self.is_on:
            return Decision(True)
        decision = self.store.peek(charges)
        if not self.config.dry_run:
            return decision
        shadows = tuple(outcome._replace(shadow=True) for outcome in decision.outcomes)
        return decision._replace(allowed=True, outcomes=shadows, retry_after=0.0)

    # After the view.

    def after_view(self, response: Response) -> Response:
        """Give tokens back where that is due, settle the rest, and tell the client."""
        req = current_request()
        exchanges = exchanges_of(req)
        exchange = exchanges.by_limiter.get(self.name)
        if exchange is None or exchange.decision is None:
            return response
        # A framework may signal an exception and answer normally. Only a 500 is a crash.
        exchange.crashed = exchange.crashed and response.status_code == 500
        exchange.streams = bool(exchange.taken or exchange.holdings) and is_sent_later(
            response, req.environ
        )
        self._settle(exchange, response)
        if exchange.streams:  # the cost of its body is still to come
            self._endings.watch(exchange)
        if exchange.answer is not None and exchange.answer.status_code == response.status_code:
            response = in_place_of(response, exchange.answer)
        decision = exchange.decision_for_headers(response)
        written = [] if decision is None else self._headers(exchanges, decision, response)
        return with_headers(response, written) if written else response

    def _settle(self, exchange: Exchange, response: Response | None = None) -> None:
        """Settle what is known, and give back slots: after the view, and after a streamed body."""
        charges = exchange.settlement(response)
        if charges:
            self.store.settle(charges)
            if exchange.standing is not None:
                self._reports.settled(exchange.taken, charges, exchange.standing)

    def _headers(
        self, exchanges: Exchanges, decision: Decision, response: Response
    ) -> list[tuple[str, str]]:
        """Return the headers that tell a decision."""
        written: list[tuple[str, str]] = []
        if not decision.allowed:
            written.append(("Cache-Control", "no-store"))
            if decision.retry_after is not None and "Retry-After" not in response.headers:
                written.append(("Retry-After", str(whole_seconds(decision.retry_after))))
        outcome = None if decision.degraded else decision.binding
        if outcome is not None and exchanges.shared.should_show(self.name, outcome):
            for style in self._styles:
                written += style(decision, outcome, exchanges.policies)
        return written

    def _note_exception(self, app: Flask, exception: BaseException | None = None, **_: Any) -> None:
        """Note an exception that Flask, or a framework on it, answers. A crash keeps tokens."""
        known = exchanges_of(current_request()).by_limiter if has_request_context() else {}
        if (exchange := known.get(self.name)) is None:
            return
        if isinstance(exception, BreachAnswered):
            exchange.answer = exception.answer  # Flask-RESTX makes its own document of it
        elif not isinstance(exception, HTTPException):  # Flask-RESTful signals abort(401) too
            exchange.crashed = True
