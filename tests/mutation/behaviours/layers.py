"""Behaviours of the stores that wrap a store: outages, the refusal cache, leases."""

from __future__ import annotations

from tests.mutation.behaviours.behaviour import broken

ATTEMPTS, BREAKER = "stores/attempts.py", "stores/breaker.py"
OUTAGE, REFUSALS = "stores/outage.py", "stores/refusals.py"
LEASE, LEASES = "stores/lease.py", "stores/leases.py"

BREAKERS = ("outage/policies",)

OUTAGES = (
    broken(
        "outage",
        "a failure of a call from before the recovery opens an outage",
        BREAKER,
        "            if ticket != self._changes:\n                return False\n"
        "            if self._next_try is None:",
        "            if self._next_try is None:",
        *BREAKERS,
    ),
    broken(
        "outage",
        "an unreadable bucket met by the retry leaves the breaker open",
        ATTEMPTS,
        "            self._end(breaker.succeeded(ticket, wrote=False))\n",
        "",
        *BREAKERS,
    ),
    broken(
        "outage",
        "a call that takes nothing ends an outage",
        OUTAGE,
        "any(o.allowed and o.cost for o in decision.outcomes)",
        "any(o.allowed for o in decision.outcomes)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "a settlement ends no outage",
        OUTAGE,
        "settle, wrote)",
        "settle, lambda _: False)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "the local policy does not count dry-run limits",
        OUTAGE,
        "self._share(held), self._share(shadow), now)",
        "self._share(held), (), now)",
        *BREAKERS,
    ),
    broken(
        "outage",
        "slots that were held by nobody end an outage",
        OUTAGE,
        'any(charge.kind != "slot" for charge in charges)',
        "True",
        "ext/at_once/test_outage.py",
    ),
    broken(
        "outage",
        "bans are scaled in an outage",
        OUTAGE,
        'if charge.kind == "ban"\n            else',
        "if False\n            else",
        *BREAKERS,
    ),
    broken(
        "outage",
        "slots are known as levels",
        "stores/levels.py",
        'if outcome.kind != "rate":',
        "if False:",
        *BREAKERS,
        "ext/at_once/test_outage.py",
    ),
)

CACHED = ("refusals",)

CACHE = (
    broken(
        "cache",
        "a refusal by the local policy outlives the outage",
        REFUSALS,
        "            if not decision.degraded:\n",
        "            if True:\n",
        *CACHED,
    ),
    broken(
        "cache",
        "the time of the call prolongs a refusal",
        REFUSALS,
        "ends = sent + (",
        "ends = answered + (",
        *CACHED,
    ),
    broken(
        "cache",
        "the time of the call shortens the wait that is told",
        REFUSALS,
        "return cls(outcome, now, ends, answered, ",
        "return cls(outcome, now, ends, sent, ",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal outlives tokens that returned during its call",
        REFUSALS,
        "if returns != self._returns:",
        "if False:",
        *CACHED,
    ),
    broken(
        "cache",
        "the time at which the bucket is full moves",
        REFUSALS,
        "max(1, self.full_at - now)",
        "max(1, self.full_at - self.now)",
        *CACHED,
    ),
    broken(
        "cache",
        "ticks of a millisecond and of a second count as microseconds",
        REFUSALS,
        "-(-full_in // limit.tick) * limit.step",
        "full_in * limit.step",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal tells enough tokens for its cost",
        REFUSALS,
        "max(remaining, min(refilled, cost - 1))",
        "max(remaining, refilled)",
        *CACHED,
    ),
    broken(
        "cache",
        "a settlement that failed forgets nothing",
        REFUSALS,
        "        try:\n            self.store.settle(charges, now)\n        finally:\n"
        "            self._forget(charges, returned=True)",
        "        self.store.settle(charges, now)\n        self._forget(charges, returned=True)",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal is cached although a ban counts it",
        REFUSALS,
        'if counts and not any(refusal.outcome.kind == "ban" for refusal in refusals):',
        "if False:",
        *CACHED,
    ),
    broken(
        "cache",
        "a refusal for want of a slot is remembered",
        REFUSALS,
        ' and charge.kind != "slot"',
        "",
        *CACHED,
    ),
)

LEASED = ("leases",)

LEASING = (
    broken(
        "lease",
        "tokens are spent after the lease",
        LEASE,
        "if clock < self.until and cost <= self.tokens:",
        "if cost <= self.tokens:",
        *LEASED,
    ),
    broken(
        "lease",
        "more is spent than is held",
        LEASE,
        "if clock < self.until and cost <= self.tokens:",
        "if clock < self.until and cost <= self.tokens + 1:",
        *LEASED,
    ),
    broken(
        "lease",
        "a worker holds more than its share",
        LEASE,
        "share = limit.capacity // (PART * workers)",
        "share = limit.capacity // workers",
        *LEASED,
    ),
    broken(
        "lease",
        "calls at the same time take ahead as if alone",
        LEASE,
        "self.most - self.under_way))\n        asked",
        "self.most))\n        asked",
        *LEASED,
    ),
    broken(
        "lease",
        "a rest is kept although it was sent back",
        LEASE,
        "rest, self.tokens = self.tokens, 0",
        "rest = self.tokens",
        *LEASED,
    ),
    broken(
        "lease",
        "a lost answer takes its room for ever",
        LEASES,
        "            lease.landed(charge)\n",
        "            if decision is not None:\n                lease.landed(charge)\n",
        *LEASED,
    ),
    broken(
        "lease",
        "the lease's time counts from the answer",
        LEASE,
        "        until = sent + self.seconds\n        self.until",
        "        until = at + self.seconds\n        self.until",
        *LEASED,
    ),
    broken(
        "lease",
        "a refused request spends what it took from a lease",
        LEASES,
        "            elif spent:\n                self.settle(_returned(spent))\n",
        "",
        *LEASED,
    ),
    broken(
        "lease",
        "a repeated refusal tells too short a wait",
        LEASE,
        "max(wait - elapsed, self.refused_until - clock)",
        "(wait - elapsed)",
        *LEASED,
    ),
    broken(
        "lease",
        "tokens for which there is no room are lost",
        LEASES,
        "cost=-lease.put_back(-charge.cost)",
        "cost=0 * lease.put_back(-charge.cost)",
        *LEASED,
    ),
    broken(
        "lease",
        "a forked child spends what its parent holds",
        LEASES,
        "        self._leases: OrderedDict[str, Lease] = OrderedDict()\n",
        '        self._leases = getattr(self, "_leases", OrderedDict())\n',
        *LEASED,
    ),
    broken(
        "lease",
        "a rest is not given back when the store is closed",
        LEASES,
        "            self.store.settle(back[i : i + AT_A_TIME])\n",
        "            pass\n",
        *LEASED,
    ),
    broken(
        "lease",
        "a reset leaves the leases",
        LEASES,
        "                    del self._leases[key]",
        "                    pass",
        *LEASED,
    ),
    broken(
        "lease",
        "slots and bans are leased",
        LEASES,
        'if not charge.lease or charge.kind != "rate":',
        "if not charge.lease:",
        *LEASED,
    ),
)
