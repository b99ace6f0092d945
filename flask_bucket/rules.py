"""Rules: limits with a key, a cost and conditions, as written at a decorator or in settings."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import wraps
from http import HTTPMethod
from typing import Any
from uuid import UUID

from flask import Response
from flask.typing import ResponseReturnValue

from .at_once import AtOnce, checked_holds
from .bans import Ban, checked_ban
from .decisions import Decision
from .durations import Number, checked_lease
from .errors import ConfigError
from .functions import checked_function, plain
from .limits import EXACT, Limit
from .sources import RuleSource, limits_of, limits_returned
from .typos import meant

# Return types of users' functions. Each may be async, and on_breach answers as a view does.
Key = str | int | UUID | None | Awaitable[str | int | UUID | None]
Breach = Callable[[Decision], ResponseReturnValue | Awaitable[ResponseReturnValue | None] | None]

#: Options that are functions, and those that may also be something else.
_FUNCTIONS = ("key_func", "exempt_when", "deduct_when", "on_breach")
_MAYBE_FUNCTIONS = ("rule", "cost", "scope", "error_message")
_SWITCHES = ("per_method", "override_defaults", "dry_run")

#: Options that say something about the tokens of a rate.
_OF_TOKENS = ("cost", "deduct_when", "low")

METHODS = tuple(method.value for method in HTTPMethod)


@dataclass(frozen=True, slots=True)
class Rule:
    """Limits with all options of :meth:`flask_bucket.Limiter.limit`, as one value.

    A rule is written once and used wherever a limit's text can be: at views, at blueprints, in
    ``default_limits`` and in ``application_limits``. The parameters are those of
    :meth:`flask_bucket.Limiter.limit`.

    :raises ConfigError: where it is written, for anything that is not what was expected.

    >>> Rule("5/second burst 20", cost=2).limits
    (Limit('5/second burst 20'),)
    """

    rule: RuleSource | None = None
    _: KW_ONLY
    burst: int | None = None
    capacity: Number | None = None
    refill_rate: Number | None = None
    per: Number = 1
    key_func: Callable[[], Key] | None = None
    scope: str | Callable[[str], str] | None = None
    name: str | None = None
    per_method: bool = False
    methods: Collection[str] | None = None
    cost: int | Callable[[], int | Awaitable[int]] = 1
    exempt_when: Callable[[], bool | Awaitable[bool]] | None = None
    deduct_when: Callable[[Response], bool | Awaitable[bool]] | None = None
    override_defaults: bool = True
    error_message: str | Callable[[], str | Awaitable[str]] | None = None
    on_breach: Breach | None = None
    dry_run: bool = False
    low: float | None = None
    lease: float | None = None
    holds: Number | None = None
    ban: Ban | str | None = None
    #: The limits as values, or the function that returns them for each request.
    limits: tuple[Limit, ...] | Callable[[], tuple[Limit, ...]] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "limits", self._read())
        self._check_at_once()
        object.__setattr__(self, "methods", _methods(self.methods))
        if not callable(self.cost):
            object.__setattr__(self, "cost", checked_cost(self.cost))
        object.__setattr__(self, "ban", checked_ban(self.ban))

    def __repr__(self) -> str:
        given = (f"{name}={getattr(self, name)!r}" for name in _options_of(self))
        source = () if self.rule is None else (repr(self.rule),)
        return f"Rule({', '.join((*source, *given))})"

    def serves(self, method: str) -> bool:
        """Return whether the rule is for this method. HEAD counts as GET."""
        return self.methods is None or counted_as(method) in self.methods

    @property
    def has_async(self) -> bool:
        """Whether any of its functions must be awaited."""
        functions = [getattr(self, f.name) for f in fields(self)[:-1]]
        functions.append(self.ban.key_func if isinstance(self.ban, Ban) else None)
        return any(map(inspect.iscoroutinefunction, functions))

    def _check(self) -> None:
        for what in _FUNCTIONS + _MAYBE_FUNCTIONS:
            value = getattr(self, what)
            if callable(value) or (value is not None and what in _FUNCTIONS):
                checked_function(what, value)
        for what in _SWITCHES:
            if not isinstance(getattr(self, what), bool):
                raise ConfigError(f"{what} is True or False, not {getattr(self, what)!r}.")
        message = self.error_message
        if not (message is None or isinstance(message, str) or callable(message)):
            raise ConfigError(f"error_message is a text or a function, not {message!r}.")
        if self.scope is not None and not callable(self.scope):
            checked_scope(self.scope)
        leased = self.lease is not None and checked_lease("lease", self.lease) > 0
        if leased and (self.deduct_when is not None or self.dry_run):
            raise ConfigError(
                f"lease={self.lease!r} does not go with deduct_when or dry_run: their tokens are "
                "counted with each request. Leave it out."
            )

        low = self.low
        if low is not None and not (type(low) in (int, float) and 0 < low <= 1):
            raise ConfigError(
                f"low is the part of the capacity to be used up, such as 0.8 for 80 %, not {low!r}."
            )

    def _check_at_once(self) -> None:
        """Check options that limits on requests at once forbid, and those that need them."""
        if self.holds is not None:
            checked_holds(self.holds)
        if callable(self.limits):
            return
        self._check_slots(self.limits)
        if self.holds is not None and not any(isinstance(x, AtOnce) for x in self.limits):
            raise ConfigError(
                f"holds={self.holds!r} goes with a limit on requests at once, such as "
                f'"5 at once". {self.rule!r} has no such limit.'
            )

    def _check_slots(self, limits: tuple[Limit, ...]) -> None:
        """Check the other options of a rule with limits on requests at once."""
        slots = [limit for limit in limits if isinstance(limit, AtOnce)]
        if slots and self.lease:
            raise ConfigError(
                f"lease={self.lease!r} does not go with {slots[0]}: each request has to ask for "
                "its slot. Leave it out."
            )
        if slots and len(slots) == len(limits):
            given = [what for what in _OF_TOKENS if what in _options_of(self)]
            if given:
                raise ConfigError(
                    f"{given[0]}={getattr(self, given[0])!r} concerns tokens, and {slots[0]} has "
                    "none: a request holds one slot, and gives it back. Leave it out."
                )

    def _read(self) -> tuple[Limit, ...] | Callable[[], tuple[Limit, ...]]:
        source = self.rule
        if self.capacity is not None or self.refill_rate is not None:
            return (self._of_numbers(),)
        if self.per != 1:
            raise ConfigError(
                f"per={self.per!r} goes with capacity and refill_rate; {source!r} says its own."
            )
        if isinstance(source, Rule):
            raise ConfigError(
                "A Rule is complete. Give its options where it is made, not to limit() as well: "
                f"given was {source!r}."
            )
        if not callable(source):
            return limits_of(source, self.burst, self.name, self.holds)
        # A wrong burst or name is found here, not at the first request.
        Limit(1 if self.burst is None else self.burst, 1, name=self.name)
        asked = plain(source)
        checks = self.lease or any(what in _options_of(self) for what in _OF_TOKENS)

        @wraps(source)
        def returned() -> tuple[Limit, ...]:
            limits = limits_returned(asked(), self.burst, self.name, self.holds)
            if checks:
                self._check_slots(limits)
            return limits

        return returned

    def _of_numbers(self) -> Limit:
        if self.rule is not None or self.burst is not None:
            raise ConfigError(
                "A limit is written as a text or as capacity and refill_rate, not as both: "
                f"given were {self.rule!r}, burst={self.burst!r}, capacity={self.capacity!r} and "
                f"refill_rate={self.refill_rate!r}."
            )
        if self.capacity is None or self.refill_rate is None:
            raise ConfigError(
                "A limit needs both capacity and refill_rate, such as capacity=10, refill_rate=2; "
                f"given were capacity={self.capacity!r} and refill_rate={self.refill_rate!r}."
            )
        return Limit(self.capacity, self.refill_rate, self.per, self.name)


def _options_of(rule: Rule) -> list[str]:
    """Return the names of the options that a rule was given."""
    options = (f for f in fields(rule) if f.init and f.name != "rule")
    return [f.name for f in options if getattr(rule, f.name) is not f.default]


def counted_as(method: str) -> str:
    """Return the method under whose limits another one counts."""
    return "GET" if method == "HEAD" else method


def rules_of(source: Any, **options: Any) -> tuple[Rule, ...]:
    """Return the rules that a decorator asks for. A list may mix Rules with limits.

    :raises ConfigError: for options beside a Rule, which has its own.
    """
    parts = source if isinstance(source, (list, tuple)) else [source]
    if not any(isinstance(part, Rule) for part in parts):
        return (Rule(source, **options),)
    defaults = {f.name: f.default for f in fields(Rule)}
    if given := [name for name, value in options.items() if value is not defaults[name]]:
        raise ConfigError(
            f"A Rule is complete. Give {', '.join(given)} where it is made, not to limit() as "
            f"well: given was {source!r}."
        )
    return tuple(part if isinstance(part, Rule) else Rule(part) for part in parts)


def make_rules(source: Any) -> tuple[Rule, ...]:
    """Build the rules of a setting: a text, a Rule, or a list of what a rule may be.

    :raises ConfigError: for anything that could not be a rule.
    """
    if source is None or source == "" or source == ():
        return ()
    if isinstance(source, (str, Limit, Rule)) or callable(source):
        return rules_of(source)
    if not isinstance(source, Iterable) or isinstance(source, (bytes, Mapping, Set)):
        # A set has no order, and names are counted in it: workers would not share buckets.
        raise ConfigError(f"{source!r} is not a list of limits, such as ['5/second', '100/hour'].")
    return tuple(rule for part in source for rule in rules_of(part))


def rules_set(key: str, value: Any, otherwise: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Build the rules that a configuration key asks for. It wins over the constructor if set."""
    if value is None:
        return otherwise
    try:
        return make_rules(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def checked_cost(cost: object) -> int:
    """Return a cost as an int.

    :raises ConfigError: unless it is a whole number of at least 0.
    """
    if isinstance(cost, float) and cost.is_integer():
        cost = int(cost)
    if type(cost) is not int or cost < 0:
        raise ConfigError(
            f"A cost is a whole number of tokens of at least 0, not {cost!r}. "
            "A request that may cost less in the end is settled with limiter.settle()."
        )
    return min(cost, EXACT - 1)  # more than any capacity all the same


def checked_scope(scope: object) -> str:
    """Return a scope.

    :raises ConfigError: unless it is a text that is not empty.
    """
    if not isinstance(scope, str) or not scope:
        raise ConfigError(f"A scope is a text that is not empty, not {scope!r}.")
    return scope


def _methods(methods: Collection[str] | None) -> frozenset[str] | None:
    if methods is None:
        return None
    if isinstance(methods, str) or not all(isinstance(m, str) and m for m in methods):
        raise ConfigError(f"methods is a list such as ['POST'], not {methods!r}.")
    if not methods:
        raise ConfigError("methods=[] would never limit anything. Leave it out for all methods.")
    for method in methods:
        close = meant(method.upper(), METHODS, at_most=1)
        if close is not None and close != method.upper():
            raise ConfigError(f"methods has {method!r}. Did you mean {close!r}?")
    return frozenset(counted_as(method.upper()) for method in methods)
