"""``flask bucket bans`` and ``ban``: who is banned and until when, and banning by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
from flask.cli import with_appcontext

from ..bans import Ban, checked_time
from ..bound import BoundBan
from ..clients import client_address, normal_address
from ..decisions import Charge
from ..enforcing import Enforcer
from ..errors import ConfigError
from ..functions import is_same
from ..limits import EXACT, SECOND, Limit
from ..stores.base import innermost
from .buckets import Bucket, server_of, stored
from .clients import reachable
from .layout import Table
from .output import Failure, duration, print_json, print_table, print_text
from .states import limiters, name_of


@dataclass(frozen=True, slots=True)
class Banned:
    """One client that is banned."""

    bucket: Bucket
    #: When the ban is over, in Unix seconds on the server's clock.
    until: float

    def as_data(self) -> dict[str, Any]:
        """Return it for programs."""
        bucket = self.bucket
        return {
            "limiter": bucket.limiter,
            "client": bucket.client,
            "scope": bucket.place,
            "name": bucket.name,
            "after": str(bucket.limit),
            "over_in": bucket.next_in,
            "until": self.until,
        }


@click.command()
@click.option("--limiter", metavar="NAME", help="Only this Limiter. The default is all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def bans(limiter: str | None, as_json: bool) -> None:
    """List who is banned, and until when.

    The ban that is over first comes first.
    """
    with reachable():
        found = [b for name, state in limiters(limiter).items() for b in _banned(name, state)]
    found.sort(key=lambda banned: (banned.until, banned.bucket.client))
    if as_json:
        print_json({"bans": [banned.as_data() for banned in found]})
    elif found:
        print_table(_table(found))
    else:
        click.echo("Nobody is banned.")


def _banned(name: str, state: Enforcer) -> Iterator[Banned]:
    now = server_of(name, state).clock() / SECOND
    for bucket in stored(name, state, kind="ban"):
        if bucket.is_banned and bucket.next_in is not None:
            yield Banned(bucket, round(now + bucket.next_in, 3))


def _table(found: list[Banned]) -> Table:
    several = len({banned.bucket.limiter for banned in found}) > 1
    headings = ["client", "banned from", "after", "over in", "until", "limiter"]
    rows: list[tuple[str, ...]] = []
    for banned in found:
        bucket = banned.bucket
        over_in, until = duration(bucket.next_in), date_of(banned.until)
        row = [bucket.client, bucket.place, str(bucket.limit), over_in, until]
        rows.append((*row, bucket.limiter) if several else tuple(row))
    shown = tuple(headings if several else headings[:-1])
    return Table("", shown, rows, frozenset(["over in"]), [""] * len(rows), group=1)


def date_of(moment: float) -> str:
    """Write a moment in local time."""
    try:
        return datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return "after 9999"  # whatever a server's clock or an older version may have made of it


@dataclass(frozen=True, slots=True)
class ByHand:
    """One ban that is begun by hand."""

    limiter: str
    state: Enforcer
    bound: BoundBan
    #: The client that the ban's key function returns, in each spelling of its keys.
    clients: tuple[str, ...]
    #: In microseconds.
    lasts: int

    def begin(self) -> float:
        """Begin it now, and return when it is over, in Unix seconds on the server's clock."""
        server = server_of(self.limiter, self.state)
        for client in self.clients:
            _begin(self.state, self.bound, self.state.spelling.client(client), self.lasts)
        return round((server.clock() + self.lasts) / SECOND, 3)

    def as_data(self, until: float) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "limiter": self.limiter,
            "ban": self.bound.ban.name,
            "after": str(self.bound.ban.after),
            "clients": self.clients,
            "until": until,
            "enforced": self.state.is_on,
        }

    def told(self, until: float) -> str:
        """Return it for people."""
        ban = self.bound.ban
        are = "is" if len(self.clients) == 1 else "are"
        return (
            f"{' and '.join(self.clients)} {are} banned for {duration(self.lasts / SECOND)}, until "
            f"{date_of(until)}, by the ban {ban.name!r} (after {ban.after}) of the Limiter "
            f"{self.limiter!r}."
        )


@click.command()
@click.argument("client")
@click.option("--for", "text", metavar="TIME", help='For how long, such as "1 hour".')
@click.option("--ban", "name", metavar="NAME", help="Only by the ban of this name.")
@click.option("--limiter", metavar="NAME", help="Only by this Limiter. The default is all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def ban(
    client: str, text: str | None, name: str | None, limiter: str | None, as_json: bool
) -> None:
    """Ban a client by hand, from now on.

    If it is banned already, the new time counts.

    CLIENT is what the key function of the ban returns: an address, a user, an API key. All bans
    with this key function begin; if a Limiter has bans with several, choose one with --ban.
    Without --for, each lasts as long as it is configured. `flask bucket reset` lifts them.
    """
    if not client.strip():
        raise Failure(
            f"The client is {client!r}. Expected what the key function of the ban returns, such as "
            "an address."
        )
    begun = [
        ByHand(of, state, bound, _clients(client, state, bound), _microseconds(text, bound.ban))
        for of, state in limiters(limiter).items()
        for bound in _chosen(of, state, name)
    ]
    if not begun:
        raise Failure(_no_ban(limiter, name), 1)
    with reachable():
        untils = [by_hand.begin() for by_hand in begun]
    told = list(zip(begun, untils, strict=True))
    if as_json:
        print_json({"client": client, "bans": [b.as_data(until) for b, until in told]})
        return
    for by_hand, until in told:
        print_text(by_hand.told(until))
    for off in dict.fromkeys(b.limiter for b in begun if not b.state.is_on):
        print_text(
            f"The Limiter {off!r} is switched off here (BUCKET_ENABLED), and then refuses nobody. "
            "The ban holds in processes where it is switched on.",
            err=True,
        )


def _chosen(limiter: str, state: Enforcer, name: str | None) -> list[BoundBan]:
    """Return the bans of a Limiter that begin: those of one name, or of one key function.

    :raises Failure: in a dry run, which bans nobody, and if it is not clear whose key CLIENT is.
    """
    bounds = [b for b in state.planner.bans if b.ban is not None]
    if name is not None:
        bounds = [b for b in bounds if b.ban is not None and b.ban.ban.name == name]
    if any(bound.shadow for bound in bounds):
        raise Failure("BUCKET_DRY_RUN is True, and a dry run bans nobody.", 1)
    bans = [bound.ban for bound in bounds if bound.ban is not None]
    if any(not is_same(bound.key_func, bans[0].key_func) for bound in bans):
        known = "; ".join(f"{b.ban.name} (after {b.ban}, by {name_of(b.key_func)})" for b in bans)
        raise Failure(
            f"The bans of the Limiter {limiter!r} have several key functions. Say with --ban which "
            f"of them the client is of: {known}."
        )
    return bans


def _no_ban(limiter: str | None, name: str | None) -> str:
    """Return why nobody can be banned: no such Limiter has such a ban."""
    whose = "No Limiter has a" if limiter is None else f"The Limiter {limiter!r} has no"
    states = limiters(limiter).values()
    known = [bound.ban.ban.name for s in states for bound in s.planner.bans if bound.ban]
    if name is not None and known:
        return f"{whose} ban {name!r}. There are {', '.join(map(repr, dict.fromkeys(known)))}."
    return (
        f"{whose} ban of its own, so nobody would look for one. Set BUCKET_BANS or "
        'Limiter(bans=...), such as "20/hour for 1 day". Bans of single limits begin only by '
        "refusals."
    )


def _clients(client: str, state: Enforcer, bound: BoundBan) -> tuple[str, ...]:
    """Return the names that a client may have for a ban: as given, and normalised as an address."""
    address = normal_address(client, state.config.ipv6_prefix) or client
    if is_same(bound.key_func, client_address):
        return (address,)
    return tuple(dict.fromkeys((client, address)))


def _microseconds(text: str | None, configured: Ban) -> int:
    """Return how long a ban is to last, in whole ticks of the configured one."""
    if text is None:
        return configured.microseconds
    try:
        seconds = checked_time(text)
    except ConfigError as error:
        raise Failure(f"--for {text!r}: {error}") from None
    after = configured.after
    ticks = -(-seconds * SECOND // after.tick)
    most = (EXACT - 1 - after.full) // after.step - 1
    if ticks > most:
        years = most * after.tick // (365 * 86_400 * SECOND)
        longest = f"{years:,} years" if years > 1 else duration(most * after.tick / SECOND)
        raise Failure(
            f"--for {text!r} is too long to be counted exactly by the ban {configured.name!r} "
            f"(after {configured}). Choose at most {longest}."
        )
    return int(ticks * after.tick)


def _begin(state: Enforcer, bound: BoundBan, spelled: str, lasts: int) -> None:
    """Let a ban of one client begin now."""
    after, store = bound.ban.after, innermost(state.store)
    key = f"{state.spelling.prefix}:{{{spelled}}}{bound.ending}"
    # A ban that goes on ends first. Then a bucket of one token, in the parts of the ban's, loses
    # it to a refusal, so that the store itself begins the ban.
    store.settle([Charge(after, key, 1 - EXACT)])
    one = Limit(1, after.refill_rate, after.per, after.name).in_ticks_of(after.tick)
    charge = Charge(one, key, 0, kind="ban", lasts=lasts)
    store.take([charge.refusal()], [charge])
