"""Replay: what a limit would have done to traffic, judged exactly and fast.

The traffic is whole requests at whole seconds, sorted, each client for itself, so the reference
bucket's arithmetic shrinks to what is written out in :func:`refused_times`: a second is a whole
number of ticks, no part of a tick is ever left over, and no clock goes back. The tests hold this
against ``flask_bucket.bucket`` and against exact rationals.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from fractions import Fraction
from heapq import nsmallest

from ..limits import SECOND, Limit
from .logs import Traffic


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one limit would have refused."""

    limit: Limit
    requests: int
    clients: int
    #: Requests refused, for each client with any.
    refused_by_client: dict[str, int]
    #: Microseconds until the next try would have been worth it, at worst.
    longest_wait: int

    @property
    def refused(self) -> int:
        return sum(self.refused_by_client.values())

    @property
    def share(self) -> Fraction:
        """The part of all requests that would have been refused."""
        return Fraction(self.refused, self.requests)

    def worst(self, count: int) -> list[tuple[str, int]]:
        """Return the clients with the most refusals, and how many each would have had."""
        return nsmallest(count, self.refused_by_client.items(), key=lambda of: (-of[1], of[0]))


def judge(traffic: Traffic, limit: Limit) -> Judgement:
    """Return what a limit would have done to sorted traffic."""
    refused_by_client = {}
    lowest = limit.scale
    for client, times in traffic.times.items():
        refused, low = refused_times(times, limit)
        if refused:
            refused_by_client[client] = len(refused)
            lowest = min(lowest, low)
    wait = -(-(limit.scale - lowest) // limit.step) * limit.tick
    return Judgement(limit, traffic.requests, len(traffic.times), refused_by_client, wait)


def refused_times(times: array[int], limit: Limit) -> tuple[array[int], int]:
    """Return when one client would have been refused, and the lowest balance at a refusal.

    :param times: the seconds at which it came, in order; it begins with a full bucket.
    """
    scale, full = limit.scale, limit.full
    gain = limit.step * (SECOND // limit.tick)  # parts a second
    refused = array("q")
    lowest = balance = full
    last = times[0]
    for second in times:
        if second != last:
            balance += (second - last) * gain
            if balance > full:
                balance = full
            last = second
        if balance >= scale:
            balance -= scale
        else:
            refused.append(second)
            if balance < lowest:
                lowest = balance
    return refused, lowest


def suggested(traffic: Traffic, limit: Limit, share: Fraction) -> Limit:
    """Return the limit of the same rate with the smallest burst that refuses at most `share`.

    A larger burst never refuses more (a bucket with room for one more is never behind by more
    than the requests that it has let pass and the smaller has not), so halving finds it.
    """
    enough = max(map(len, traffic.times.values()))  # refuses nothing, at any rate
    affordable = int(share * traffic.requests)
    too_small = 0
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
    scale = limit.scale
    gain = limit.step * (SECOND // limit.tick)
    used = highest = 0
    last = times[0]
    for second in times:
        if second != last:
            used = max(0, used - (second - last) * gain)
            last = second
        used += scale
        if used > highest:
            highest = used
    return -(-highest // scale)
