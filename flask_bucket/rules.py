"""Rules: limits bound to a key, a cost and conditions, as written at a decorator or in settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Literal

from flask import Response, current_app

from .decisions import Charge, Decision
from .errors import ConfigError
from .keys import KeyFunc, tail
from .limits import EXACT, Limit, Number, distinct_names

#: What a rule may be written as; a callable returns any of the others, or None: no limit now.
RuleText = str | Limit | Sequence[str | Limit]
RuleSource = RuleText | Callable[[], Any]

#: Where a rule was written, from the outside in.
Source = Literal["application", "default", "blueprint", "view", "function"]

_SWITCHES = frozenset({"per_method", "override_defaults", "dry_run"})

_parse_many = lru_cache(maxsize=1000)(Limit.parse_many)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """What one decorator, or one setting, asks for; see :meth:`flask_bucket.Limiter.limit`."""

    limits: tuple[Limit, ...] | Callable[[], tuple[Limit, ...]]
    key_func: KeyFunc | None = None
    scope: str | None = None
    per_method: bool = False
    methods: frozenset[str] | None = None
    cost: int | Callable[[], int] = 1
    exempt_when: Callable[[], bool] | None = None
    deduct_when: Callable[[Response], bool] | None = None
    override_defaults: bool = True
    error_message: str | Callable[[], str] | None = None
    on_breach: Callable[[Decision], Any] | None = None
    dry_run: bool = False
    #: Whether any of its callables must be awaited.
    has_async: bool = False

    def serves(self, method: str) -> bool:
        """Return whether the rule is for this method; HEAD counts as GET."""
        return self.methods is None or counted_as(method) in self.methods


def counted_as(method: str) -> str:
    return "GET" if method == "HEAD" else method


def make_rule(
    rule: RuleSource | None,
    *,
    burst: int | None = None,
    capacity: Number | None = None,
    refill_rate: Number | None = None,
    per: Number = 1,
    name: str | None = None,
    scope: str | None = None,
    methods: Collection[str] | None = None,
    cost: int | Callable[[], Any] = 1,
    **conditions: Any,
) -> Rule:
    """Check and build a rule where it is written.

    :raises ConfigError: for anything that could not be a rule.
    """
    limits: tuple[Limit, ...] | Callable[[], tuple[Limit, ...]]
    if capacity is not None or refill_rate is not None:
        if rule is not None or burst is not None:
            raise ConfigError(
                "A limit is written as a text or as capacity and refill_rate, not as both: "
                f"given were {rule!r}, burst={burst!r}, capacity={capacity!r} and "
                f"refill_rate={refill_rate!r}."
            )
        if capacity is None or refill_rate is None:
            raise ConfigError(
                "A limit needs both capacity and refill_rate, such as capacity=10, refill_rate=2; "
                f"given were capacity={capacity!r} and refill_rate={refill_rate!r}."
            )
        limits = (Limit(capacity, refill_rate, per, name),)
    elif per != 1:
        raise ConfigError(f"per={per!r} goes with capacity and refill_rate; {rule!r} says its own.")
    elif callable(rule):
        # A burst or name that is none is told of here, not at the first request.
        Limit(1 if burst is None else burst, 1, name=name)
        source = plain(rule)
        limits = wraps(rule)(lambda: _limits(source(), burst, name, optional=True))
    else:
        limits = _limits(rule, burst, name, optional=False)
    _check(scope, conditions)
    functions = [f for f in (rule, cost, *conditions.values()) if callable(f)]
    plained: dict[str, Any] = {
        what: plain(value) if callable(value) else value for what, value in conditions.items()
    }
    return Rule(
        limits=limits,
        scope=scope,
        methods=_methods(methods),
        cost=plain(cost) if callable(cost) else checked_cost(cost),
        has_async=any(map(inspect.iscoroutinefunction, functions)),
        **plained,
    )


def _check(scope: object, conditions: Mapping[str, Any]) -> None:
    """Raise ConfigError for a scope, a function or a switch that is none."""
    for what, value in conditions.items():
        if what.endswith(("func", "when", "breach")) and not (value is None or callable(value)):
            raise ConfigError(f"{what} is a function to be called, not {value!r}.")
        if what in _SWITCHES and not isinstance(value, bool):
            raise ConfigError(f"{what} is True or False, not {value!r}.")
    message = conditions.get("error_message")
    if not (message is None or isinstance(message, str) or callable(message)):
        raise ConfigError(f"error_message is a text or a function, not {message!r}.")
    if scope is not None and (not isinstance(scope, str) or not scope):
        raise ConfigError(f"A scope is a text that is not empty, not {scope!r}.")


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that can be called from here, also if it must be awaited."""
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(function)
    def awaited(*args: Any) -> Any:
        return current_app.ensure_sync(function)(*args)

    return awaited


def checked_cost(cost: object) -> int:
    """Return a cost if it is one.

    :raises ConfigError: unless it is an int of at least 0.
    """
    if type(cost) is not int or cost < 0:
        raise ConfigError(
            f"A cost is a whole number of tokens of at least 0, not {cost!r}. "
            "A request that may cost less in the end is settled with limiter.settle()."
        )
    return min(cost, EXACT - 1)  # more than any capacity all the same


def _limits(
    rule: object, burst: int | None, name: str | None, *, optional: bool
) -> tuple[Limit, ...]:
    """Read what a rule is written as, or what its callable returned."""
    if optional and rule is None:
        return ()
    limits = _flattened(rule)
    if not limits and not optional:
        raise ConfigError(
            f"{rule!r} holds no limit. Expected a text such as '5/second burst 20', a Limit, "
            "a list of these, or a function that returns one of them."
        )
    if burst is not None:
        if len(limits) != 1 or limits[0].capacity != limits[0].refill_rate:
            raise ConfigError(
                f"burst={burst!r} goes with one limit that has no burst yet, not with {rule!r}. "
                "Write each burst into its text, such as '5/second burst 20; 100/minute'."
            )
        limits = (Limit(burst, limits[0].refill_rate, limits[0].per, limits[0].name),)
    return limits if name is None else tuple(limit.named(name) for limit in limits)


def _flattened(rule: object) -> tuple[Limit, ...]:
    if isinstance(rule, Limit):
        return (rule,)
    if isinstance(rule, str):
        return _parse_many(rule)
    if isinstance(rule, Sequence) and not isinstance(rule, (bytes, bytearray)):
        return tuple(limit for part in rule for limit in _flattened(part))
    raise ConfigError(
        f"{rule!r} is not a limit. Expected a text such as '5/second burst 20', a Limit, "
        "a list of these, or a function that returns one of them or None."
    )


def _methods(methods: Collection[str] | None) -> frozenset[str] | None:
    if methods is None:
        return None
    if isinstance(methods, str) or not all(isinstance(m, str) and m for m in methods):
        raise ConfigError(f"methods is a list such as ['POST'], not {methods!r}.")
    if not methods:
        raise ConfigError("methods=[] would never limit anything. Leave it out for all methods.")
    return frozenset(counted_as(method.upper()) for method in methods)


def make_rules(limits: RuleSource | Iterable[RuleSource] | None) -> tuple[Rule, ...]:
    """Build the rules of a setting: a text, or a list of what a rule may be."""
    if limits is None or limits == "" or limits == ():
        return ()
    if isinstance(limits, (str, Limit)) or callable(limits):
        return (make_rule(limits),)
    if not isinstance(limits, Iterable) or isinstance(limits, (bytes, Mapping, Set)):
        # A set has no order, and names are counted in it: workers would not share buckets.
        raise ConfigError(f"{limits!r} is not a list of limits, such as ['5/second', '100/hour'].")
    return tuple(make_rule(limit) for limit in limits)


def rules_set(key: str, value: Any, otherwise: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """Build the rules that a configuration key asks for; it wins over the constructor if set."""
    if value is None:
        return otherwise
    try:
        return make_rules(value)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class BoundRule:
    """A rule bound to where it applies, with everything prepared that no request changes."""

    rule: Rule
    source: Source
    key_func: KeyFunc
    #: The part of the key that says where the rule applies, spelled.
    scope: str
    #: The limits, each with what stands behind the client in its keys; None: ask the rule.
    fixed: tuple[tuple[Limit, str], ...] | None
    shadow: bool

    def client(self, clients: dict[int, str | None]) -> str | None:
        """Return whom the current request is charged to, or None if the rule leaves it out.

        :param clients: what key functions returned, by their identity: each is asked once.
        """
        if self.rule.exempt_when is not None and self.rule.exempt_when():
            return None
        key_func = self.key_func
        if id(key_func) not in clients:
            clients[id(key_func)] = checked_key(key_func(), key_func)
        return clients[id(key_func)]

    @property
    def is_fixed(self) -> bool:
        """Whether a client is charged the same with every request, and always something."""
        rule = self.rule
        return bool(self.fixed) and isinstance(rule.cost, int) and rule.exempt_when is None

    def charges(self, begin: str) -> list[Charge]:
        """Return what a client is charged now; its keys begin as :meth:`Spelling.begin` says."""
        rule = self.rule
        fixed = self.fixed
        if fixed is None:
            assert callable(rule.limits)
            fixed = tails(self.scope, rule.limits())
        if not fixed:
            return []
        cost = rule.cost if isinstance(rule.cost, int) else checked_cost(rule.cost())
        returns = rule.deduct_when is not None
        return [Charge(limit, begin + behind, cost, returns) for limit, behind in fixed]


def checked_key(key: object, key_func: object) -> str | None:
    """Return what a key function returned, if it is a key.

    :raises ConfigError: unless it is a text or None.
    """
    if key is None or isinstance(key, str):
        return key
    name = getattr(key_func, "__qualname__", key_func)
    raise ConfigError(
        f"A client's key is a text, or None to leave the request out; {key!r} came from {name}. "
        "Use str() on a number; decode bytes."
    )


def tails(
    scope: str, limits: Iterable[Limit], taken: set[str] | None = None
) -> tuple[tuple[Limit, str], ...]:
    """Pair each limit with what stands behind the client in its keys, under a name of its own."""
    return tuple((limit, tail(scope, limit.name)) for limit in distinct_names(limits, taken))
