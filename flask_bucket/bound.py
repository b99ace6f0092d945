"""Bound rules: a rule at the place where it applies, and the charges that it asks for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal
from uuid import UUID

from flask import Response

from . import grammar
from .at_once import AtOnce
from .bans import Ban
from .clients import KeyFunc
from .decisions import Charge, Decision
from .errors import ConfigError
from .functions import plain
from .keys import SCOPE_MARK, ending, spelled
from .limits import Limit, distinct_names
from .rules import Rule, checked_cost
from .stores.lease import share_of_worker

#: Where a rule was written, from the outside in.
Source = Literal["application", "default", "blueprint", "view", "function", "block"]

#: The options of a rule that may be functions, and are called for a request.
_CALLED = ("cost", "exempt_when", "deduct_when", "error_message", "on_breach")

#: A limit, the rest of its keys after the client, and its text if that is noted with its buckets.
Named = tuple[Limit, str, str]

#: The place of a Limiter's own bans in their keys.
OF_LIMITER = f"{SCOPE_MARK}limiter"


@dataclass(frozen=True, slots=True, eq=False)
class BoundBan:
    """A ban bound to where it counts: to a rule, or to the Limiter."""

    ban: Ban
    key_func: KeyFunc
    #: The part of its keys after the client.
    ending: str

    @classmethod
    def of(cls, ban: Ban, bound: BoundRule, names: set[str]) -> BoundBan:
        """Bind a ban to a bound rule. In a dry run, refusals are counted in a bucket of its own.

        :param names: of bans, in use in this scope already; the one given out is added.
        """
        (limit,) = distinct_names([ban.after], names)
        ban = ban if limit.name == ban.name else ban.named(limit.name)
        scope = f"{bound.scope}{SCOPE_MARK}dry-run" if bound.shadow else bound.scope
        key_func = bound.key_func if ban.key_func is None else plain(ban.key_func)
        return cls(ban, key_func, ending(scope, limit.name, "ban"))

    def charge(self, start: str) -> Charge:
        """Return the charge of a client's ban.

        :param start: the start of the client's keys, as :meth:`Spelling.start` makes it.
        """
        key, lasts = start + self.ending, self.ban.microseconds
        return Charge(self.ban.after, key, 0, kind="ban", lasts=lasts)


@dataclass(frozen=True, slots=True, eq=False)
class BoundRule:
    """A rule bound to where it applies, with everything prepared that no request changes."""

    rule: Rule
    source: Source
    key_func: KeyFunc
    #: The part of the key that says where the rule applies, spelled.
    scope: str
    #: The limits, each with the rest of its keys. None: only a request can tell.
    fixed: tuple[Named, ...] | None
    shadow: bool
    #: Seconds for which tokens are taken ahead, of those limits that can be leased.
    lease: float
    workers: int | None
    cost: int | Callable[[], Any]
    exempt_when: Callable[[], Any] | None
    deduct_when: Callable[[Response], Any] | None
    error_message: str | Callable[[], Any] | None
    on_breach: Callable[[Decision], Any] | None
    #: The part of the capacity that is used when the bucket is reported as low, exactly.
    low: Fraction | None
    #: The ban that counts its refusals, and closes it.
    ban: BoundBan | None = None

    @classmethod
    def of(
        cls,
        rule: Rule,
        source: Source,
        scope: str,
        *,
        key_func: KeyFunc,
        dry_run: bool,
        lease: float,
        workers: int | None,
        names: set[str],
    ) -> BoundRule:
        """Bind a rule.

        :param key_func: the Limiter's, for a rule that has none of its own.
        :param lease: the seconds of a rule that does not say its own.
        :param workers: all workers, if their number is known.
        :param names: the names in use in this scope already; those given out are added.
        """
        fixed = None
        if not callable(rule.limits):
            fixed = tuple((x, _ending(scope, x), "") for x in distinct_names(rule.limits, names))
        return cls(
            rule,
            source,
            key_func if rule.key_func is None else plain(rule.key_func),
            scope,
            fixed,
            rule.dry_run or dry_run,
            low=None if rule.low is None else Fraction(str(rule.low)),
            lease=_lease(rule, lease, dry_run=dry_run),
            workers=workers,
            **{name: _plain(getattr(rule, name)) for name in _CALLED},
        )

    @property
    def is_fixed(self) -> bool:
        """Whether a client is charged the same with every request, and always something."""
        return bool(self.fixed) and isinstance(self.cost, int) and self.exempt_when is None

    def charges(self, start: str, facts: Facts) -> list[Charge]:
        """Return what a client is charged now.

        :param start: the start of the client's keys, as :meth:`Spelling.start` makes it.
        """
        named = self.fixed if self.fixed is not None else _apart(self.scope, facts.limits(self))
        if not named:
            return []
        cost, returns = facts.cost(self), self.deduct_when is not None
        return [
            Charge(limit, start + rest, cost, returns, lease=self.lease_of(limit), noted=text)
            if not isinstance(limit, AtOnce)
            else Charge(limit, start + rest, kind="slot", lasts=limit.lasts)
            for limit, rest, text in named
        ]

    def lease_of(self, limit: Limit) -> float:
        """Return the seconds for which tokens of one of the limits are taken ahead; 0 for none."""
        if not self.lease or isinstance(limit, AtOnce):
            return 0.0
        return self.lease if share_of_worker(limit, self.lease, self.workers) else 0.0


def policies_of(bounds: Iterable[BoundRule]) -> dict[str, str]:
    """Return the names under which clients hear of limits, by the rest of their keys.

    Limits of other scopes may have the same name, and a client must tell them apart.
    """
    told: dict[str, Limit] = {}
    for bound in bounds:
        if not bound.shadow and bound.fixed is not None:
            told |= {ending: limit for limit, ending, _ in bound.fixed}
    names = [limit.name for limit in distinct_names(told.values())]
    return dict(zip(told, names, strict=True))


class Facts:
    """The facts of a request that rules depend on. Here, those of the current request.

    To charge a plan without a live request, as a simulation does, pass other facts.
    """

    def __init__(self) -> None:
        #: What key functions returned, by their identity: each is asked once.
        self._clients: dict[int, str | None] = {}

    def name(self, key_func: KeyFunc | None, client: str) -> None:
        """Note a client that is known already, instead of asking its key function."""
        self._clients[id(key_func)] = client

    def client(self, bound: BoundRule) -> str | None:
        """Return the client to charge, or None if the rule leaves the request out."""
        if bound.exempt_when is not None and bound.exempt_when():
            return None
        return self.client_by(bound.key_func)

    def client_by(self, key_func: KeyFunc) -> str | None:
        """Return the client that a key function names."""
        if id(key_func) not in self._clients:
            self._clients[id(key_func)] = checked_key(key_func(), key_func)
        return self._clients[id(key_func)]

    def cost(self, bound: BoundRule) -> int:
        """Return the tokens that the request costs."""
        return bound.cost if isinstance(bound.cost, int) else checked_cost(bound.cost())

    def limits(self, bound: BoundRule) -> tuple[Limit, ...]:
        """Return the limits of a rule whose limits are a function."""
        limits = bound.rule.limits
        return limits() if callable(limits) else limits


@lru_cache(maxsize=1000)
def _apart(scope: str, limits: tuple[Limit, ...]) -> tuple[Named, ...]:
    """Name the limits that a function returned, so that each set of numbers has its own buckets.

    Otherwise "1/minute" for one request and "10/minute" for the next would take each other's
    tokens. A limit that was given a name is one bucket, and its balance is carried over. Its key
    does not tell its numbers, so its text is noted with the bucket.
    """
    named = []
    for given, limit in zip(limits, distinct_names(limits), strict=True):
        if given.is_named:
            named.append((limit, _ending(scope, limit), str(limit)))
        else:
            place = f"{scope}{SCOPE_MARK}{spelled(_numbers(limit))}"
            named.append((limit, _ending(place, limit), ""))
    return tuple(named)


def _ending(scope: str, limit: Limit) -> str:
    """Return the rest of a limit's keys after the client. Slots and tokens never share a key."""
    return ending(scope, limit.name, "slot" if isinstance(limit, AtOnce) else "rate")


def _numbers(limit: Limit) -> str:
    """Write a limit's capacity and reduced rate: ``10.1-per-6s`` for 10/minute."""
    if isinstance(limit, AtOnce):
        return str(limit).replace(" ", "-")
    rate = limit.rate
    return f"{limit.capacity}.{rate.numerator}-per-{rate.denominator}s"


_NUMBERS = re.compile(r"([1-9]\d*)\.([1-9]\d*)-per-([1-9]\d*)s")


def read_numbers(scope: str, name: str) -> Limit | None:
    """Read back the limit that a function returned, from the scope and the name in its keys.

    None if they are not those of such a limit.
    """
    written = scope.rpartition(SCOPE_MARK)[2]
    if (at_once := grammar.read_at_once(written.replace("-", " "))) is not None:
        return AtOnce(at_once)
    found = _NUMBERS.fullmatch(written)
    if found is None:
        return None
    capacity, tokens, seconds = map(int, found.groups())
    try:
        # The name says the period, such as per-minute, in which people write the rate.
        per = Fraction(Limit.parse("1 " + name.replace("-", " ")).per)
    except ConfigError:
        per = Fraction(seconds)
    try:
        return Limit(capacity, Fraction(tokens, seconds) * per, per)
    except ConfigError:
        return None


def _lease(rule: Rule, seconds: float, *, dry_run: bool) -> float:
    """Return the lease of a rule: its own, or the setting's where a lease is possible."""
    if rule.deduct_when is not None or rule.dry_run or dry_run:
        return 0.0
    return seconds if rule.lease is None else rule.lease


def _plain(value: Any) -> Any:
    return plain(value) if callable(value) else value


def checked_key(key: object, key_func: object) -> str | None:
    """Return the client that a key function named.

    :raises ConfigError: unless it is a text, an int, a UUID or None.
    """
    if key is None or isinstance(key, str):
        return key
    if isinstance(key, (int, UUID)) and not isinstance(key, bool):
        return str(key)
    name = getattr(key_func, "__qualname__", key_func)
    raise ConfigError(
        "A client's key is a text, an int or a UUID, or None to leave the request out; "
        f"{key!r} came from {name}. Decode bytes, and use str() on anything else."
    )
