"""``flask bucket bans`` and ``ban``: who is banned and until when, and banning by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
from flask.cli import with_appcontext

from .. import grammar
from ..bans import Ban
from ..bound import BoundBan
from ..decisions import Charge
from ..enforcing import Enforcer
from ..errors import ConfigError
from ..limits import EXACT, SECOND, Limit
from ..stores.base import innermost
from .buckets import Bucket, server_of, stored
from .clients import reachable, spellings
from .layout import Table
from .output import Failure, duration, print_json, print_table
from .states import limiters


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
    """List who is banned, and until when: whose ban is over first comes first."""
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
        until = datetime.fromtimestamp(banned.until).strftime("%Y-%m-%d %H:%M:%S")
        row = [bucket.client, bucket.place, str(bucket.limit), duration(bucket.next_in), until]
        rows.append((*row, bucket.limiter) if several else tuple(row))
    shown = tuple(headings if several else headings[:-1])
    return Table("", shown, rows, frozenset(["over in"]), [""] * len(rows), group=1)


@click.command()
@click.argument("client")
@click.option("--for", "text", metavar="TIME", help='For how long, such as "1 hour".')
@click.option("--limiter", metavar="NAME", help="Only by this Limiter. The default is all.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_appcontext
def ban(client: str, text: str | None, limiter: str | None, as_json: bool) -> None:
    """Ban a client by hand, from now on, whether it is banned already or not.

    CLIENT is what the key function of the ban returns: an address, a user, an API key. Without
    --for, it is banned for as long as the configured ban says. `flask bucket reset` lifts it.
    """
    states = limiters(limiter)
    chosen = {name: _chosen(state) for name, state in states.items() if state.planner.bans}
    if not chosen:
        raise Failure(
            "No Limiter has a ban, so none would look for one. Set BUCKET_BANS, such as "
            '"20/hour for 1 day".',
            1,
        )
    lasts = {name: _microseconds(text, bound.ban) for name, bound in chosen.items()}
    until = []
    with reachable():
        for name, bound in chosen.items():
            server = server_of(name, states[name])
            for spelled in spellings(client, states[name]):
                _ban(states[name], bound, spelled, lasts[name])
            until.append((name, server.clock() / SECOND + lasts[name] / SECOND))
    if as_json:
        print_json(
            {"client": client, "bans": [{"limiter": n, "until": round(u, 3)} for n, u in until]}
        )
        return
    for name, end in until:
        at = datetime.fromtimestamp(end).strftime("%Y-%m-%d %H:%M:%S")
        by = f" by the Limiter {name!r}" if len(until) > 1 else ""
        click.echo(f"{client} is banned{by} for {duration(lasts[name] / SECOND)}, until {at}.")


def _chosen(state: Enforcer) -> BoundBan:
    """Return the ban that closes the application: the first of a Limiter's.

    :raises Failure: in a dry run, which bans nobody.
    """
    bound = state.planner.bans[0]
    if bound.shadow or bound.ban is None:
        raise Failure("BUCKET_DRY_RUN is True, and a dry run bans nobody.", 1)
    return bound.ban


def _microseconds(text: str | None, configured: Ban) -> int:
    """Return how long a ban is to last, in whole ticks of the configured one."""
    if text is None:
        return configured.microseconds
    try:
        seconds = grammar.read_duration(text)
    except ConfigError as error:
        raise Failure(f"--for {text!r}: {error}") from None
    after = configured.after
    ticks = -(-seconds * SECOND // after.tick)
    if ticks < 1 or after.full + after.step * (1 + ticks) >= EXACT:
        raise Failure(
            f"--for {text!r} cannot be counted exactly beside {configured}. Choose a time above "
            f"0, and not much longer than {grammar.write_duration(configured.lasts)}."
        )
    return int(ticks * after.tick)


def _ban(state: Enforcer, bound: BoundBan, spelled: str, lasts: int) -> None:
    """Let a ban of one client begin now."""
    after, store = bound.ban.after, innermost(state.store)
    key = f"{state.spelling.prefix}:{{{spelled}}}{bound.ending}"
    # A ban that goes on ends first. Then a bucket of one token, in the parts of the ban's, loses
    # it to a refusal, so that the store itself begins the ban.
    store.settle([Charge(after, key, 1 - EXACT)])
    one = Limit(1, after.refill_rate, after.per, after.name).in_ticks_of(after.tick)
    charge = Charge(one, key, 0, kind="ban", lasts=lasts)
    store.take([charge.refusal()], [charge])
