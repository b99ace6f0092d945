"""Decorators: how limits are put on views, functions and Blueprints."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from functools import partial, wraps
from typing import Any, TypeVar

from flask import Blueprint, Flask, Response
from flask.typing import ResponseReturnValue

from .decisions import Decision
from .errors import ConfigError
from .limits import Number
from .registry import Decoration, Registry
from .rules import Rule, RuleSource, make_rule, plain

Target = TypeVar("Target", bound="Callable[..., Any] | Blueprint")
Filter = TypeVar("Filter", bound=Callable[[], bool | Awaitable[bool]])

# What users' functions return. Each may be async, and on_breach answers as a view does.
Key = str | None | Awaitable[str | None]
Breach = Callable[[Decision], ResponseReturnValue | Awaitable[ResponseReturnValue | None] | None]


class Decorators:
    """The part of a Limiter that is used where views are written.

    :param has_async: whether what the Limiter itself was given must be awaited.
    """

    def __init__(self, *, has_async: bool) -> None:
        self._registry = Registry()
        self._filters: list[Callable[[], bool]] = []
        self._has_async = has_async

    def _at_decorator(self, decoration: Decoration) -> None:
        """Charge what applies where a decorator stands among the view's decorators."""
        raise NotImplementedError  # the Limiter's, which knows applications and requests

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
        return _Decorator(partial(self._decorate, made), rule)

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


class _Decorator:
    """What ``limit(...)`` returns; it tells of ``@limiter.limit`` without parentheses."""

    def __init__(self, decorate: Callable[[Any], Any], rule: object) -> None:
        self._decorate, self._rule = decorate, rule

    def __call__(self, target: Target) -> Target:
        decorated: Target = self._decorate(target)
        return decorated

    @property
    def __name__(self) -> str:
        raise ConfigError(
            f"@limiter.limit is written with its limit, as @limiter.limit('5/second'); here it was "
            f"put on {self._rule!r} as it stands."
        )


def is_function(target: object) -> bool:
    """Return whether a target may stand for a view: classes and applications are called too."""
    return callable(target) and not isinstance(target, (type, Flask))
