"""Replay of traffic through limits, exact and fast.

Each client's requests are sorted and cost one token, and no clock goes back, so the reference
bucket's arithmetic shrinks to a few lines, in :func:`refused_times`. The tests compare it with
``flask_bucket.bucket`` and with exact rationals.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import nsmallest

from ..limits import Limit
from .bursts import least_burst
from .traffic import Traffic


@dataclass(frozen=True, slots=True)
class Judgement:
    """The refusals of one limit, or of several together."""

    #: None for several together.
    limit: Limit | None
    requests: int
    clients: int
    #: Refused requests by client. Clients without any are absent.
    refused_by_client: dict[str, int]
    #: The longest wait that a client would have been told, in microseconds.
    longest_wait: int

    @property
    def refused(self) -> int:
        return sum(self.refused_by_client.values())

    @property
    def share(self) -> Fraction:
        """The share of requests that would have been refused."""
        return Fraction(self.refused, self.requests)

    @property
    def share_of_clients(self) -> Fraction:
        """The share of clients with a refused request."""
        return Fraction(len(self.refused_by_client), self.clients)

    def worst(self, count: int) -> list[tuple[str, int]]:
        """Return the clients with the most refusals, and their refusals."""
        return nsmallest(count, self.refused_by_client.items(), key=lambda of: (-of[1], of[0]))


def judge(traffic: Traffic, limit: Limit) -> Judgement:
    """Replay sorted traffic through one limit."""
    refused_by_client = {}
    longest = 0
    for client, times in traffic.times.items():
        refused, wait = refused_times(times, limit)
        if refused:
            refused_by_client[client] = len(refused)
            longest = max(longest, wait)
    return Judgement(limit, traffic.requests, len(traffic.times), refused_by_client, longest)


def judge_together(traffic: Traffic, limits: Sequence[Limit]) -> tuple[Judgement, ...]:
    """Replay sorted traffic through limits as one decision: a refusal takes nothing from any.

    The first judgement is that of all limits together, then one follows for each. Several limits
    may refuse the same request.
    """
    refused: list[dict[str, int]] = [{} for _ in range(len(limits) + 1)]
    waits = [0] * (len(limits) + 1)
    for client, times in traffic.times.items():
        for n, (count, wait) in enumerate(_refused_together(times, limits)):
            if count:
                refused[n][client] = count
                waits[n] = max(waits[n], wait)
    names = (None, *limits)
    return tuple(
        Judgement(limit, traffic.requests, len(traffic.times), by_client, wait)
        for limit, by_client, wait in zip(names, refused, waits, strict=True)
    )


def _refused_together(times: array[int], limits: Sequence[Limit]) -> list[tuple[int, int]]:
    """Return the refusals and the longest wait of all limits together, then of each limit."""
    balances, lasts = [limit.full for limit in limits], [times[0]] * len(limits)
    refused, longest = [0] * (len(limits) + 1), [0] * (len(limits) + 1)
    for now in times:
        waits = [0]  # of all together, which is the longest
        for n, limit in enumerate(limits):
            balances[n], lasts[n] = _refilled(limit, balances[n], lasts[n], now)
            lacking = limit.scale - balances[n]
            wait = -(-lacking // limit.step) * limit.tick - (now - lasts[n]) if lacking > 0 else 0
            waits.append(wait)
        waits[0] = max(waits)
        for n, wait in enumerate(waits):
            refused[n] += wait > 0
            longest[n] = max(longest[n], wait)
        if not waits[0]:
            balances = [b - limit.scale for b, limit in zip(balances, limits, strict=True)]
    return list(zip(refused, longest, strict=True))


def _refilled(limit: Limit, balance: int, last: int, now: int) -> tuple[int, int]:
    """Return a balance at `now`, and the time up to which it is refilled."""
    ticks = (now - last) // limit.tick
    balance += ticks * limit.step
    return (limit.full, now) if balance >= limit.full else (balance, last + ticks * limit.tick)


def refused_times(times: array[int], limit: Limit) -> tuple[array[int], int]:
    """Return the times at which one client would have been refused, and its longest wait.

    :param times: the microseconds of its requests, in order. Its bucket is full before them.
    """
    scale, full, step, tick = limit.scale, limit.full, limit.step, limit.tick
    refused = array("q")
    longest = 0
    balance, last = full, times[0]
    for now in times:
        if now != last:
            ticks = (now - last) // tick
            balance += ticks * step
            if balance >= full:
                balance, last = full, now
            else:
                last += ticks * tick
        if balance >= scale:
            balance -= scale
        else:
            refused.append(now)
            wait = -((balance - scale) // step) * tick - (now - last)
            if wait > longest:
                longest = wait
    return refused, longest


def suggested(traffic: Traffic, limit: Limit, share: Fraction) -> Limit:
    """Return the limit of the same rate with the smallest burst that refuses at most `share`.

    It is never smaller than :func:`least_burst`, or the doctor would advise against it. A larger
    burst never refuses more, so halving finds the smallest. (A bucket with room for one more token
    lacks at most the tokens of those requests that it has allowed and the smaller has refused.)
    """
    least = least_burst(limit)
    enough = max(least, *map(len, traffic.times.values()))  # refuses nothing, at any rate
    affordable = int(share * traffic.requests)
    too_small = least - 1
    while enough - too_small > 1:
        middle = (enough + too_small) // 2
        if _refuses_more_than(affordable, traffic, _with_burst(limit, middle)):
            too_small = middle
        else:
            enough = middle
    return _with_burst(limit, enough)


def _refuses_more_than(affordable: int, traffic: Traffic, limit: Limit) -> bool:
    refused = 0
    for times in traffic.times.values():
        if len(times) > limit.capacity:  # fewer are never refused
            refused += len(refused_times(times, limit)[0])
            if refused > affordable:
                return True
    return False


def _with_burst(limit: Limit, capacity: int) -> Limit:
    return Limit(capacity, limit.refill_rate, limit.per, limit.name)


def peak(times: array[int], limit: Limit) -> int:
    """Return the smallest burst that would have refused one client nothing, at the limit's rate."""
    scale, step, tick = limit.scale, limit.step, limit.tick
    used = highest = 0
    last = times[0]
    for now in times:
        if now != last:
            ticks = (now - last) // tick
            used -= ticks * step
            if used <= 0:
                used, last = 0, now
            else:
                last += ticks * tick
        used += scale
        if used > highest:
            highest = used
    return -(-highest // scale)
