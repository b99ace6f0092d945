"""Bills: the charges of a request at one point, kept where they stay the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from .at_once import AtOnce, parse_many
from .bound import OF_LIMITER, BoundRule, Facts, checked_key
from .clients import LONGEST_CACHED
from .decisions import Charge, Charges
from .errors import ConfigError
from .functions import is_same
from .keys import Spelling, ending, spelled
from .limits import Limit, distinct_names
from .plans import Point
from .rules import checked_cost, checked_scope

#: A charge and the rule that asked for it.
Item = tuple[Charge, BoundRule]

#: How many bills an application keeps: those of the clients seen last.
KEPT = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Bill:
    """The charges of one client at one point."""

    charges: Charges
    #: The charges of dry-run rules.
    shadow: tuple[Charge, ...]
    #: All charges with their rules, in the order of the decision's outcomes.
    items: tuple[Item, ...]
    #: The same, with the charges as they are when their tokens come from leases.
    leased_items: tuple[Item, ...]
    #: Whether any of the tokens are given back as a rule.
    returns: bool
    #: Whether any of the rules reports a low bucket.
    warns: bool
    #: Whether any of the charges asks for a slot, which this request is to hold.
    asks_slots: bool
    #: Whether any of the charges is a ban.
    bans: bool

    @classmethod
    def of(cls, enforced: list[Item], dry: list[Item]) -> Bill:
        """Make a bill of the charges of enforced rules and of dry-run rules."""
        charges = Charges([charge for charge, _ in enforced])
        shadow = tuple(charge for charge, _ in dry)
        returns = any(charge.returns for charge in (*charges, *shadow))
        items = leased = (*enforced, *dry)
        if any(charge.lease for charge, _ in items):
            leased = tuple((replace(c, taken_from="lease"), bound) for c, bound in items)
        warns = any(bound.low is not None for _, bound in items)
        asks_slots = any(charge.kind == "slot" for charge, _ in items)
        bans = any(charge.kind == "ban" for charge, _ in items)
        return cls(charges, shadow, items, leased, returns, warns, asks_slots, bans)


def charges_by_hand(
    spelling: Spelling, limits: Limit | str, key: object, cost: int, scope: str
) -> list[Charge]:
    """Return the charges of buckets that no rule names.

    :raises ConfigError: for a limit, a key, a cost or a scope that cannot be used.
    """
    if not isinstance(limits, (str, Limit)):
        raise ConfigError(f"{limits!r} is not a limit. Expected a Limit, or a text for one.")
    several = (limits,) if isinstance(limits, Limit) else parse_many(limits)
    if any(isinstance(limit, AtOnce) for limit in several):
        raise ConfigError(
            f"{limits!r} is for requests: after a call by hand, nobody would give the slot back. "
            "Use limiter.limit(...) in a with statement."
        )
    cost, start = checked_cost(cost), spelling.start(client_by_hand(key))
    place = spelled(checked_scope(scope))
    return [
        Charge(x, start + ending(place, x.name), cost, noted=text_of(x))
        for x in distinct_names(several)
    ]


@lru_cache(maxsize=1000)
def text_of(limit: Limit) -> str:
    """Return a limit's text. Writing it takes longer than all else about a charge."""
    return str(limit)


def client_by_hand(key: object) -> str:
    """Return the client of a call by hand.

    :raises ConfigError: for a key that cannot be one, such as None.
    """
    client = checked_key(key, "the call")
    if client is None:
        raise ConfigError("A client's key is a text, not None: None has no buckets.")
    return client


class Bills:
    """Writes bills, and keeps those that are used again. Thread-safe."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self.kept = lru_cache(maxsize=KEPT)(self._lasting)

    def bill(self, point: Point) -> Bill | None:
        """Return the bill of the current request, or None if there is nothing to charge."""
        key_func = point.key_func
        if key_func is None:
            return self.written(point, Facts())
        client = checked_key(key_func(), key_func)
        if client is None:
            return None
        if len(client) > LONGEST_CACHED:
            return self._lasting(point, client)
        return self.kept(point, client)

    def written(self, point: Point, facts: Facts) -> Bill | None:
        """Write the bill of a request, of which the facts are known."""
        enforced: list[Item] = []
        dry: list[Item] = []
        keys: set[str] = set()
        for bound in point.bounds:
            client = facts.client(bound)
            if client is not None:
                for charge in bound.charges(self._spelling.start(client), facts):
                    item = (_told_apart(charge, keys), bound)
                    (dry if bound.shadow else enforced).append(item)
        if not enforced and not dry:
            return None
        if point.has_bans:
            self._add_bans(point, facts, enforced, dry)
        return Bill.of(enforced, dry)

    def _add_bans(self, point: Point, facts: Facts, enforced: list[Item], dry: list[Item]) -> None:
        """Add the bans of a client, and note which charges' refusals each of them counts."""
        charged = dict.fromkeys(bound for _, bound in (*enforced, *dry))
        for bound in (*point.bans, *charged):
            ban = bound.ban
            client = None if ban is None else facts.client_by(ban.key_func)
            if ban is None or client is None:
                continue
            charge = ban.charge(self._spelling.start(client))
            for items in (enforced, dry):
                items[:] = [
                    (replace(c, counts_for=(*c.counts_for, charge.key)), b)
                    if _counts(bound, c, b)
                    else (c, b)
                    for c, b in items
                ]
            (dry if bound.shadow else enforced).append((charge, bound))

    def _lasting(self, point: Point, client: str) -> Bill | None:
        """Write a bill that is the same with every request of a client."""
        facts = Facts()
        facts.name(point.key_func, client)
        return self.written(point, facts)


def _told_apart(charge: Charge, keys: set[str]) -> Charge:
    """Rename a charge that would share the bucket of another one at its point.

    Names are told apart where rules are bound. That leaves those that a function returns, and
    those of rules from several places that have one explicit scope.

    :param keys: those in use at this point already; the one given out is added.
    """
    key, n = charge.key, 1
    while key in keys:
        n += 1
        key = f"{charge.key}-{n}"
    keys.add(key)
    if n == 1:
        return charge
    return replace(charge, key=key, limit=charge.limit.named(f"{charge.limit.name}-{n}"))


def _counts(banning: BoundRule, charge: Charge, bound: BoundRule) -> bool:
    """Return whether a ban counts refusals of a charge: a rule's, of that rule alone; the
    Limiter's, of all rates by the same key function. A tenant over its limit must not ban the
    addresses of its staff.
    """
    if banning.scope != OF_LIMITER:
        return bound is banning
    if charge.kind != "rate" or banning.ban is None:
        return False
    return is_same(banning.ban.key_func, bound.key_func)
