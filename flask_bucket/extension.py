"""Limiter: the extension object, the public interface."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, overload
from uuid import UUID

from flask import Flask, Response, has_app_context, has_request_context
from flask.sansio.blueprints import Blueprint
from werkzeug.exceptions import HTTPException

from . import moving
from .answers import unavailable_over_http
from .applications import add_enforcer, current_enforcer
from .bans import Ban, make_bans
from .bills import charges_by_hand, client_by_hand
from .clients import client_address
from .current import current_request
from .decisions import Decision
from .decorators import BlueprintLimit, Decoration, Exemption, Registry, Target
from .durations import Number
from .enforcing import Enforcer
from .exchange import Exchange, exchanges_of
from .functions import checked_function, is_application, plain
from .keys import checked_name
from .limit_decorator import LimitDecorator
from .limits import Limit
from .openapi import describe
from .rules import Breach, Key, Rule, checked_cost, checked_scope, make_rules, rules_of
from .sources import RuleSource
from .status import status_view_of
from .stores.breaker import Health
from .stores.outage import health_of

Filter = TypeVar("Filter", bound=Callable[[], bool | Awaitable[bool]])

#: The default of an argument for which None would be a mistake.
_NOTHING: Any = object()


class Limiter:
    """Limits request rates with token buckets.

    :param app: the application; or call :meth:`init_app` later, for one or several.
    :param key_func: returns the client of the current request as a text, an int or a UUID, or
        None to leave the request out. By default its address.
    :param default_limits: for each endpoint that has no limits of its own: a text, a Limit, a
        list of these, or a function that returns one of them.
    :param application_limits: for the application as a whole, over all endpoints.
    :param bans: for clients that go on after being refused: a Ban, a text such as
        ``"20/hour for 1 day"``, or a list of these.
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

    @moving.hinting(moving.ARGUMENTS, moving.no_application)
    def __init__(
        self,
        app: Flask | None = None,
        *,
        key_func: Callable[[], Key] = client_address,
        default_limits: RuleSource | Rule | Iterable[RuleSource | Rule] = (),
        application_limits: RuleSource | Rule | Iterable[RuleSource | Rule] = (),
        bans: Ban | str | Iterable[Ban | str] = (),
        redis: object = None,
        on_breach: Breach | None = None,
        name: str = "bucket",
    ) -> None:
        checked_function("key_func", key_func)
        if on_breach is not None:
            checked_function("on_breach", on_breach)
        self.name = checked_name(name)
        banning = make_bans(bans)
        functions = (key_func, on_breach, *(ban.key_func for ban in banning))
        self._registry = Registry(
            name,
            key_func=plain(key_func),
            default=make_rules(default_limits),
            application=make_rules(application_limits),
            bans=banning,
            on_breach=None if on_breach is None else plain(on_breach),
            has_async=any(map(inspect.iscoroutinefunction, functions)),
            redis=redis,
        )
        #: A view that tells the client what is left in its buckets, as JSON. It charges nothing.
        self.status_view = self._registry.exempt(Exemption(), status_view_of(name))
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Limit an application as its configuration says. Connects to nothing yet.

        docs/configuration.md lists the keys. Each can be set in the environment by
        ``app.config.from_prefixed_env()``, with ``FLASK_`` before it; a key that is set wins over
        the constructor's argument.

        :raises ConfigError: for a value that is not one, and for a ``BUCKET_`` key that resembles
            one of ours or is Flask-Limiter's, renamed. Other keys are the application's.
        :raises RuntimeError: if the application has a Limiter of this name already, or has
            handled a request, so that it takes no more hooks.
        """
        if not is_application(app):
            raise moving.no_application(app)
        try:
            add_enforcer(app, self.name, lambda: Enforcer(app, self, self._registry))
        except AssertionError as error:  # Flask's, for what comes after the first request
            raise RuntimeError(
                f"The application {app.name!r} has handled a request already, and that one had no "
                "limits. Call limiter.init_app(app) where the application is made."
            ) from error

    # Where views are written.

    @moving.hinting(moving.OF_LIMIT, moving.without_a_name)
    def limit(
        self,
        rule: RuleSource | Rule | Sequence[RuleSource | Rule] | None = None,
        *,
        burst: int | None = None,
        capacity: Number | None = None,
        refill_rate: Number | None = None,
        per: Number = 1,
        key_func: Callable[[], Key] | None = None,
        scope: str | Callable[[str], str] | None = None,
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
        low: float | None = None,
        lease: float | None = None,
        holds: Number | None = None,
        ban: Ban | str | None = None,
    ) -> LimitDecorator:
        """Limit a view, a method of a MethodView, any function, a Blueprint, or a block.

        A decorator charges where it stands: put those that may turn a request away for another
        reason, such as ``@login_required``, above it. A Blueprint's limit is charged where it
        stands among the Blueprint's ``before_request`` hooks. Stacked limits are one call. All
        functions given may be ``async``. In a ``with`` statement, a `scope` is needed.

        :param rule: a text such as ``"5/second burst 20"``, a Limit, a list of these, or a
            function that returns one of them, or None for no limit now; or a Rule, which has
            its options already.
        :param burst: the capacity, for a text without one.
        :param capacity: instead of `rule`, with `refill_rate` and `per` (seconds): see
            :class:`~flask_bucket.Limit`.
        :param key_func: returns the client; by default the Limiter's key function.
        :param scope: limits with the same scope and name share a bucket, over all endpoints. May
            be a function of the endpoint. A view's own scope is its endpoint, so that the name
            of one shares its view's buckets.
        :param name: identifies the limit in its scope; by default its period in words.
        :param per_method: count each method separately.
        :param methods: the methods to limit; by default all.
        :param cost: tokens, or a function that returns them. A cost above the capacity is
            refused for ever, and a cost of 0 is always allowed.
        :param exempt_when: if it returns True, this limit leaves the request out.
        :param deduct_when: called with the response; if it returns False, the tokens, which
            were taken up front, are given back. It is not asked when the view crashes, and
            the tokens stay taken.
        :param override_defaults: False keeps blueprints' and default limits in force beside this.
        :param error_message: the text of a refusal, or a function that returns it.
        :param on_breach: called with the Decision on a refusal; may return a response.
        :param dry_run: report what this would refuse, and refuse nothing.
        :param low: send the signal ``limit_low`` when this part of a capacity is used: 0.8.
        :param lease: seconds for which each worker takes tokens ahead, so that most requests take
            no call; 0 for none, and by default as ``BUCKET_LEASE`` says.
        :param holds: of a limit such as ``"5 at once"``, the seconds after which a slot is free
            in any case; by default 60.
        :param ban: closes only this limit to a client that goes on after it was refused: a
            :class:`~flask_bucket.Ban`, or a text such as ``"5/hour for 1 day"``.
        :raises ConfigError: for anything that is not what was expected.
        """
        rules = rules_of(
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
            low=low,
            lease=lease,
            holds=holds,
            ban=ban,
        )
        block = self._at_block, self._after_block
        return LimitDecorator(rules, registry=self._registry, put_on=self._limit, block=block)

    @moving.hinting(moving.OF_LIMIT, moving.without_a_name)
    def shared_limit(
        self, rule: RuleSource, scope: str | Callable[[str], str], **same: Any
    ) -> LimitDecorator:
        """Limit several endpoints with one bucket for all of them; see :meth:`limit`."""
        return self.limit(rule, scope=scope if callable(scope) else checked_scope(scope), **same)

    @overload
    def exempt(self, target: Target) -> Target: ...

    @overload
    def exempt(
        self, *, application: bool = True, blueprint: bool = True, default: bool = True
    ) -> Callable[[Target], Target]: ...

    def exempt(
        self,
        target: Any = _NOTHING,
        *,
        application: bool = True,
        blueprint: bool = True,
        default: bool = True,
    ) -> Any:
        """Free a view or a Blueprint of application, blueprint and default limits.

        A limit on the view itself still counts, and so does one of a Blueprint inside the exempted
        one. It can be a decorator, in any position.

        :param application: False keeps the application's limits in force.
        :param blueprint: False keeps the Blueprints' limits in force.
        :param default: False keeps the default limits in force.
        :raises ConfigError: for anything but a function or a Blueprint.
        """
        exemption = Exemption(application, blueprint, default)
        exempt = partial(self._registry.exempt, exemption)
        return exempt if target is _NOTHING else exempt(target)

    def request_filter(self, passes: Filter) -> Filter:
        """Register a function that lets a request pass without any limit by returning True.

        It is called once, before the first limit of the request is charged.
        """
        checked_function("A request filter", passes)
        self._registry.filters.append(plain(passes))
        return passes

    def _limit(self, rules: tuple[Rule, ...], target: Any) -> Any:
        if isinstance(target, Blueprint):
            self._registry.limit_blueprint(target, BlueprintLimit(rules, self._at_blueprint))
            return target
        return self._registry.decorate(target, rules, self._at_decorator)

    def _at_blueprint(self, limit: BlueprintLimit) -> None:
        current_enforcer(self.name).at_blueprint(limit)

    def _at_decorator(self, decoration: Decoration) -> HTTPException | None:
        if self._registry.enabled is False or not has_request_context():
            return None  # limits are for requests, and functions may be called from elsewhere
        return current_enforcer(self.name).at_decorator(decoration)

    def _at_block(self, rules: tuple[Rule, ...]) -> None:
        if self._registry.enabled is not False and has_request_context():
            current_enforcer(self.name).at_block(rules)

    def _after_block(self, rules: tuple[Rule, ...]) -> None:
        if has_request_context():  # a limit that was switched off meanwhile gives back too
            current_enforcer(self.name).after_block(rules)

    # By hand: in a view, a task or a command.

    def consume(
        self, limit: Limit | str, key: str | int | UUID, cost: int = 1, scope: str = "manual"
    ) -> Decision:
        """Charge a bucket that belongs to no view, and return the decision.

        Needs an application context: a view, a task or a command has one.

        :param limit: a Limit, or a text for one or several.
        :param key: the client.
        :param cost: tokens; 0 looks without taking.
        :param scope: tells buckets of the same client apart. A rule with this ``scope`` shares the
            bucket if its limit has the same name, and so does a view with this endpoint. So an
            endpoint named ``manual`` shares buckets with calls that give no scope.
        :raises ConfigError: for a limit, a key or a cost that cannot be used.
        """
        enforcer = current_enforcer(self.name)
        return enforcer.consume(charges_by_hand(enforcer.spelling, limit, key, cost, scope))

    def peek(
        self, limit: Limit | str, key: str | int | UUID, cost: int = 1, scope: str = "manual"
    ) -> Decision:
        """Return what :meth:`consume` would answer, taking nothing."""
        enforcer = current_enforcer(self.name)
        return enforcer.peek(charges_by_hand(enforcer.spelling, limit, key, cost, scope))

    def reset(self, client: str | int | UUID = _NOTHING) -> int:
        """Forget all buckets of a client, so that they are full; return how many there were.

        Without a client, forget every bucket of this Limiter: for tests and accidents.

        :param client: as the key function returns it, such as ``"2001:db8::/64"``.
        :raises ConfigError: for None, which a key function may have returned by mistake.
        :raises StoreUnavailable: if the store cannot be reached.
        """
        spelling = current_enforcer(self.name).spelling
        spelled = None if client is _NOTHING else spelling.client(client_by_hand(client))
        with unavailable_over_http():
            return current_enforcer(self.name).store.reset(spelled, spelling.prefix)

    def reset_current(self) -> None:
        """Forget the buckets that the view's own limits charged for the current request.

        Use it for a login that succeeds, to forgive the failures before it. It leaves the buckets
        of application, blueprint and default limits, and those with a `scope`, since they also
        count other views or other clients' guesses.
        """
        exchange = self._exchange
        refills = [] if exchange is None else exchange.forgiven()
        if refills:
            current_enforcer(self.name).store.settle(refills)

    def health(self) -> Health:
        """Return the health of the store, for a health endpoint. It makes no call.

        Its ``state`` is ``"ok"``, ``"connecting"`` (a connection is being made), ``"degraded"``
        (BUCKET_ON_ERROR decides) or ``"recovering"``. No state is a reason for a restart.
        """
        return health_of(current_enforcer(self.name).store)

    def openapi(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Add 429 and the rate headers to each limited operation of an OpenAPI specification.

        :param spec: the specification as a dictionary, which is changed and returned.
        """
        return describe(current_enforcer(self.name), spec)

    def settle(self, cost: int) -> None:
        """Set the real cost of the current request, once it is known.

        After the response, one call corrects the limits that its view was charged by the
        difference; this may leave a debt. If some of these limits were written with a `cost`, only
        they are corrected: the others count requests. It also works while a response is streamed.

        :param cost: tokens, in place of the cost that was charged.
        :raises ConfigError: for anything but a whole number of at least 0.
        """
        real = checked_cost(cost)
        exchange = self._exchange
        if exchange is not None:
            exchange.real_cost = real

    @property
    def current(self) -> Decision | None:
        """The decision about the current request; None if no limit applied."""
        exchange = self._exchange if has_request_context() else None
        return None if exchange is None else exchange.decision

    @property
    def enabled(self) -> bool:
        """Whether limits hold: as ``BUCKET_ENABLED`` says, until this is assigned to."""
        enabled = self._registry.enabled
        if enabled is None and has_app_context():
            return current_enforcer(self.name).is_on
        return enabled is not False

    @enabled.setter
    def enabled(self, value: bool) -> None:
        self._registry.enabled = bool(value)

    @property
    def _exchange(self) -> Exchange | None:
        return exchanges_of(current_request()).by_limiter.get(self.name)

    if not TYPE_CHECKING:  # to a type checker, every attribute would exist

        def __getattr__(self, name: str) -> Any:
            raise moving.missing_attribute(name)
