"""The faults. Each replaces text that occurs exactly once in its file.

A fault in the script alone, or in the reference alone, makes the two disagree. Planted in both
alike it is a fault of the specification, which only the oracle in exact rationals can find.
"""

from __future__ import annotations

from dataclasses import dataclass

LUA, PYTHON = "bucket.lua", "bucket.py"

#: Text, and what is written in its place.
Edit = tuple[str, str]


@dataclass(frozen=True)
class Fault:
    area: str
    name: str
    #: The edits that plant it in the script, and those that plant it in the reference.
    lua: tuple[Edit, ...] = ()
    python: tuple[Edit, ...] = ()
    #: Whether clients could tell, if both had it: if not, why.
    both: bool = True
    because: str = ""
    #: Whether both have it although it is planted once: they share the code, or the time.
    alike: bool = False

    def planted(self) -> dict[str, dict[str, tuple[Edit, ...]]]:
        """Return, by where the fault is planted, the edits to make in each file."""
        places: dict[str, dict[str, tuple[Edit, ...]]] = {}
        if self.lua:
            places["script"] = {LUA: self.lua}
        if self.python:
            places["reference"] = {PYTHON: self.python}
        if self.lua and self.python and self.both:
            places["both"] = {LUA: self.lua, PYTHON: self.python}
        return places


#: The script has a straight way for the usual call, and functions for all others.
FILLS_STRAIGHT = "if ticks >= ceil((full - balance) / step) then\n    balance, last = full, now\n"
FILLS = "if ticks >= ceil((full - balance) / step) then\n      return full, now, false\n"
TICKS_STRAIGHT = "local ticks = floor((now - last) / tick)\n  "
TICKS = "local ticks = floor(elapsed / tick)\n    "
REFILLS_STRAIGHT = "balance, last = balance + ticks * step, last + ticks * tick"
REFILLS = "return balance + ticks * step, last + ticks * tick"

#: The reference where a bucket is full, and where it is absent.
FULL = "return State(limit.full, now, limit.scale), False\n    # Only"
ABSENT = "return State(limit.full, now, limit.scale), False\n    tokens"

REFILL = (
    Fault(
        "refill",
        "the remainder of a tick is dropped",
        (
            (REFILLS_STRAIGHT, "balance, last = balance + ticks * step, now"),
            (REFILLS, "return balance + ticks * step, now"),
        ),
        (("state.last_refill + ticks * limit.tick", "now"),),
    ),
    Fault(
        "refill",
        "a tick counts before it has passed",
        (
            (TICKS_STRAIGHT, TICKS_STRAIGHT.replace("floor", "ceil")),
            (TICKS, TICKS.replace("floor", "ceil")),
        ),
        (("elapsed // limit.tick", "-(-elapsed // limit.tick)"),),
    ),
    Fault(
        "refill",
        "a bucket refills beyond its capacity",
        (
            (FILLS_STRAIGHT, "if false then\n" + FILLS_STRAIGHT.partition("\n")[2]),
            (FILLS, "if false then\n" + FILLS.partition("\n")[2]),
        ),
        (("if ticks * limit.step >= limit.full - tokens:", "if False:"),),
    ),
    Fault(
        "refill",
        "> for >= where a refill fills the bucket",
        ((FILLS, FILLS.replace(">=", ">")),),
    ),
    Fault(
        "refill",
        "> for >= where a refill fills the bucket, in the straight way",
        ((FILLS_STRAIGHT, FILLS_STRAIGHT.replace(">=", ">")),),
    ),
    Fault(
        "refill",
        "a full bucket goes on counting idle time",
        (
            (FILLS_STRAIGHT, FILLS_STRAIGHT.replace("full, now", "full, last")),
            (FILLS, FILLS.replace("full, now", "full, last")),
        ),
        ((FULL, FULL.replace("now", "state.last_refill")),),
    ),
    Fault(
        "refill",
        "a bucket fills to one part less",
        (
            (FILLS_STRAIGHT, FILLS_STRAIGHT.replace("= full, now", "= full - 1, now")),
            (FILLS, FILLS.replace("full, now", "full - 1, now")),
        ),
        ((FULL, FULL.replace("limit.full", "limit.full - 1")),),
    ),
    Fault(
        "refill",
        "an absent bucket is empty",
        (
            ("balance, last = full, now -- an absent", "balance, last = 0, now -- an absent"),
            ("bucket.balance, bucket.last = full, now", "bucket.balance, bucket.last = 0, now"),
        ),
        ((ABSENT, ABSENT.replace("limit.full", "0")),),
    ),
)

ANSWER, ASKS = "for i = 1, allowed and count or 0 do", "    if cost > 0 then\n"
TAKES = "local balance = reply[3 * i] - cost * scale"
STRAIGHT, OTHER = "cost * scale <= balance", "asked * scale <= bucket.balance"

JUDGING = (
    Fault(
        "judging",
        "< for <= where the tokens just suffice",
        ((STRAIGHT, STRAIGHT.replace("<=", "<")), (OTHER, OTHER.replace("<=", "<"))),
        (("wanted * charge.limit.scale <= state", "wanted * charge.limit.scale < state"),),
    ),
    Fault("judging", "< for <= in the straight way", ((STRAIGHT, STRAIGHT.replace("<=", "<")),)),
    Fault("judging", "< for <= in the other", ((OTHER, OTHER.replace("<=", "<")),)),
    Fault(
        "judging",
        "the capacity is off by one",
        (
            ("cost <= capacity and", "cost < capacity and"),
            ("asked <= capacity and", "asked < capacity and"),
        ),
        (("wanted <= charge.limit.capacity and", "wanted < charge.limit.capacity and"),),
    ),
    Fault(
        "judging",
        "a look at a bucket in debt is refused",
        (
            ("affordable = cost == 0 or (cost", "affordable = (cost"),
            ("affordable = cost == 0 or (asked", "affordable = (asked"),
        ),
        (("affordable = charge.cost == 0 or (", "affordable = ("),),
    ),
    Fault(
        "judging",
        "a refusal takes what it can",
        (
            ("(kind ~= 'held' and allowed and", "(kind ~= 'held' and"),
            (ANSWER, ANSWER.replace("allowed and count or 0", "count")),
            (ASKS, ASKS.replace("cost > 0", "cost > 0 and reply[3 * i - 1] == 0")),
        ),
        (("    if allowed:\n        for charge, _,", "    if True:\n        for charge, _,"),),
    ),
    Fault(
        "judging",
        "a refusal writes what it looked at",
        (
            (ANSWER, ANSWER.replace("allowed and count or 0", "mode == 'take' and count or 0")),
            (ASKS, ASKS.replace("cost > 0", "not (absent and absent[i])")),
            (TAKES, TAKES.replace("cost * scale", "(allowed and cost or 0) * scale")),
            ("bucket.changed = bucket.changed or rebased", "bucket.changed = true"),
        ),
        (("if rebased:\n", "if known is not None:\n"),),
    ),
    Fault(
        "judging",
        "a peek writes, in the straight way",
        (("if mode == 'take' then", "if true then"),),
    ),
    Fault(
        "judging",
        "a peek writes",
        (("bucket.changed and mode ~= 'peek'", "bucket.changed"),),
    ),
)

#: Both answers say in Python how long to wait.
WAIT = "return -(-(balance - tokens) // limit.step) * limit.tick - (now - last_refill)"

WAITS = (
    Fault(
        "waits",
        "a wait is rounded down to a tick",
        python=(
            (
                WAIT,
                WAIT.replace("-(-(balance - tokens) //", "(balance - tokens) //").replace(
                    "step)", "step"
                ),
            ),
        ),
        alike=True,
    ),
    Fault(
        "waits",
        "a wait leaves out what has passed of the tick",
        python=((WAIT, WAIT.removesuffix(" - (now - last_refill)")),),
        alike=True,
    ),
    Fault(
        "waits",
        "a cost of the whole capacity never comes",
        python=(("if wanted <= limit.capacity:", "if wanted < limit.capacity:"),),
        alike=True,
    ),
    Fault(
        "waits",
        "a cost above the capacity has a wait",
        python=(("if wanted <= limit.capacity:", "if wanted <= limit.capacity + 1:"),),
        alike=True,
    ),
)

#: Where a clock that was set back is told from a late one, and what is done about it.
BACK, LATE = "if elapsed < -STEP_TOLERANCE then", "return balance, last, false -- a late"
REBASE = "return balance, now, true"

CLOCK = (
    Fault(
        "clock",
        "the rebase is dropped",
        ((BACK, "if false then"),),
        (("if elapsed < -STEP_TOLERANCE:", "if False:"),),
    ),
    Fault(
        "clock",
        "a refusal does not keep the rebase",
        ((REBASE, "return balance, now, false"),),
        (("State(tokens, now, limit.scale), True", "State(tokens, now, limit.scale), False"),),
    ),
    Fault(
        "clock",
        "a clock set back fills the bucket",
        ((REBASE, "return full, now, true"),),
        (("State(tokens, now, limit.scale), True", "State(limit.full, now, limit.scale), True"),),
    ),
    Fault(
        "clock",
        "a clock late by just the tolerance counts as set back",
        ((BACK, BACK.replace("<", "<=")),),
        (("if elapsed < -STEP_TOLERANCE:", "if elapsed <= -STEP_TOLERANCE:"),),
    ),
    Fault(
        "clock",
        "a late timestamp is refilled from again",
        ((LATE, "return balance, now, false -- a late"),),
        (("State(tokens, state.last_refill, limit.scale)", "State(tokens, now, limit.scale)"),),
    ),
    Fault(
        "clock",
        "a late timestamp takes a refill back, in the straight way",
        (("now >= last and ", ""),),
    ),
    Fault(
        "clock",
        "a late timestamp takes a refill back",
        (("  if elapsed >= 0 then", "  if elapsed >= -STEP_TOLERANCE then"),),
        (("if elapsed < 0:", "if False:"),),
    ),
    Fault(
        "clock",
        "the server's microseconds are dropped",
        (("now = time[1] * 1000000 + time[2]", "now = time[1] * 1000000"),),
        alike=True,
    ),
)

CARRIED = "tokens if old == new else tokens * new // old"
ROUNDED = "    return rest > 0 and -result - 1 or -result\n  end\n  return result\n"
SAME = "hash[3] == ARGV[at + 2]"
CLAMP = "  if balance > full then\n    balance = full\n"

CHANGES = (
    Fault(
        "config change",
        "a balance is carried over rounded up",
        ((ROUNDED, "    return -result\n  end\n  return rest > 0 and result + 1 or result\n"),),
        ((CARRIED, "tokens if old == new else -(-tokens * new // old)"),),
    ),
    Fault(
        "config change",
        "a debt is carried over rounded towards zero",
        ((ROUNDED, "    return -result\n  end\n  return result\n"),),
        ((CARRIED, "tokens * new // old if tokens > 0 else -(-tokens * new // old)"),),
    ),
    Fault(
        "config change",
        "a balance is not carried over",
        (("if stored ~= scale then", "if false then"), (SAME, "true")),
        ((CARRIED, "tokens"),),
    ),
    Fault(
        "config change",
        "a changed limit fills the bucket",
        (("balance = rescale(balance, stored, scale)", "balance = full"),),
        ((CARRIED, "tokens if old == new else EXACT"),),
    ),
    Fault(
        "config change",
        "a changed limit empties the bucket",
        (("balance = rescale(balance, stored, scale)", "balance = 0"),),
        ((CARRIED, "tokens if old == new else 0"),),
    ),
    Fault(
        "config change",
        "the clamp to a smaller capacity is dropped",
        ((CLAMP, CLAMP.replace("balance > full", "false")),),
        (("tokens = _bounded(_rescale(", "tokens = (lambda carried, limit: carried)(_rescale("),),
    ),
    Fault(
        "config change",
        "a product too large is formed",
        (
            (
                "balance = rescale(balance, stored, scale)",
                "balance = floor(balance * scale / stored)",
            ),
        ),
    ),
    Fault(
        "config change",
        "the new scale is not stored",
        (("  if stored == scale then\n", "  if stored then\n"),),
    ),
    Fault(
        "config change",
        "a balance in other parts is taken as it is, in the straight way",
        ((SAME, "true"),),
    ),
)

SEVERAL = (
    Fault(
        "multi-bucket",
        "only the first bucket can refuse",
        (
            (
                "if not affordable and kind == 'take' then",
                "if not affordable and kind == 'take' and i == 1 then",
            ),
            (
                "allowed = allowed and affordable",
                "allowed = allowed and (affordable or i > 1)",
            ),
        ),
        (
            (
                "allowed = all(affordable for _, _, affordable, _ in judged)",
                "allowed = all(affordable for _, _, affordable, _ in judged[:1])",
            ),
        ),
    ),
    Fault(
        "multi-bucket",
        "a key that comes twice is judged twice alone",
        (("asked = bucket.wanted + cost", "asked = cost"),),
        (("self._wanted.get(charge.key, 0) + charge.cost", "charge.cost"),),
    ),
    Fault(
        "multi-bucket",
        "a key that comes twice is judged twice alone, in the straight way",
        (("usual = usual and KEYS[earlier] ~= key", "usual = usual"),),
    ),
    Fault(
        "multi-bucket",
        "what was held is not given back",
        (("amount, bucket.again = cost, bucket.again", "bucket.again = bucket.again"),),
        (("            buckets.add(charge, charge.cost)\n", ""),),
    ),
    Fault(
        "multi-bucket",
        "what was held is given back also when allowed",
        (("elseif kind == 'held' and not allowed then", "elseif kind == 'held' then"),),
        (("    else:\n        for charge in held:", "    if True:\n        for charge in held:"),),
    ),
    Fault(
        "multi-bucket",
        "a wait forgets what was held of the same bucket",
        (("wanted + bucket.again", "wanted"),),
        (("wanted + again.get(row.key, 0)", "wanted"),),
    ),
    Fault(
        "multi-bucket",
        "a shadow limit refuses",
        (("if not affordable and kind == 'take' then", "if not affordable then"),),
        (
            (
                "    again: dict[str, int] = {}\n",
                "    again: dict[str, int] = {}\n    allowed = all(row[2] for row in judged)\n",
            ),
        ),
    ),
    Fault(
        "multi-bucket",
        "a shadow limit is not taken",
        (("(kind ~= 'held' and allowed", "(kind == 'take' and allowed"),),
        (
            (
                "        for charge, _, affordable, _ in judged:\n            if affordable:",
                "        for charge, dry, affordable, _ in judged:\n"
                "            if affordable and not dry:",
            ),
        ),
    ),
    Fault(
        "multi-bucket",
        "an unaffordable shadow limit stands in the way of the next",
        (("if affordable or kind == 'take' then", "if true then"),),
        (("if affordable or not shadow:", "if True:"),),
    ),
)

BALANCE = "balance = _bounded(state.tokens + tokens * limit.scale, limit)"
GIVEN = "if amount > floor((bucket.full - bucket.balance) / bucket.scale) then"

SETTLING = (
    Fault(
        "settle",
        "giving back lifts a bucket above its capacity",
        ((GIVEN, "if false then"),),
        ((BALANCE, "balance = state.tokens + tokens * limit.scale"),),
    ),
    Fault(
        "settle",
        "settling leaves no debt",
        (
            (
                "bucket.balance = bucket.balance + amount * bucket.scale",
                "bucket.balance = math.max(0, bucket.balance + amount * bucket.scale)",
            ),
        ),
        ((BALANCE, BALANCE.replace("_bounded(", "max(0, _bounded(") + ")"),),
    ),
    Fault(
        "settle",
        "settling charges only the first bucket",
        (
            (
                "if mode == 'settle' or (kind",
                "if mode == 'settle' and i == 1 or (mode ~= 'settle' and kind",
            ),
        ),
        (
            (
                "for charge in charges:\n        buckets.add(charge, -",
                "for charge in charges[:1]:\n        buckets.add(charge, -",
            ),
        ),
    ),
    Fault(
        "settle",
        "what is given back is taken",
        (("    amount = -cost\n", "    amount = cost < 0 and cost or -cost\n"),),
        (
            (
                "for charge in charges:\n        buckets.add(charge, -charge.cost)",
                "for charge in charges:\n        buckets.add(charge, -abs(charge.cost))",
            ),
        ),
    ),
    Fault(
        "settle",
        "a debt grows beyond what is exact",
        (
            (
                "elseif -amount > floor((bucket.balance - lowest) / bucket.scale) then",
                "elseif false then",
            ),
        ),
        (
            (
                "return max(min(tokens, limit.full), limit.full - (EXACT - 1))",
                "return min(tokens, limit.full)",
            ),
        ),
        both=False,
        because="Python's integers have no such bound",
    ),
    Fault(
        "settle",
        "giving back to an absent bucket writes it",
        (("(amount > 0 and not bucket.absent)", "(amount > 0)"),),
        (
            (
                "if tokens == 0 or (tokens > 0 and charge.key not in self._states):",
                "if tokens == 0:",
            ),
        ),
        both=False,
        because="an absent bucket and a full one are the same",
    ),
)

KEPT = "return min(-(-ticks * limit.tick // 1000) + TTL_MARGIN, EXACT - 1)"
#: In the straight way, and in the other.
EXPIRES = ("min(wait + TTL_MARGIN, LARGEST)", "min(ms + TTL_MARGIN, LARGEST)")
EXPIRING = tuple(f"call('PEXPIRE', key, {expires})\n" for expires in EXPIRES)
STORES_STRAIGHT = "\n          call('HSET', key, 'tokens', balance, 'last_refill', last)"
STORES = "\n    call('HSET', key, 'tokens', balance, 'last_refill', last)"

STORING = (
    Fault(
        "storing",
        "the TTL is halved",
        tuple((expires, f"floor({expires} / 2)") for expires in EXPIRES),
        ((KEPT, KEPT.replace("return ", "return (").replace("EXACT - 1)", "EXACT - 1)) // 2")),),
    ),
    Fault(
        "storing",
        "the TTL has no margin",
        (("TTL_MARGIN = 60000", "TTL_MARGIN = 0"),),
        (("TTL_MARGIN = 60_000", "TTL_MARGIN = 0"),),
    ),
    Fault(
        "storing",
        "the TTL is the margin alone",
        tuple((expires, "TTL_MARGIN") for expires in EXPIRES),
        ((KEPT, "return TTL_MARGIN"),),
    ),
    *(
        Fault("storing", f"the TTL {what}{of}", ((expiring, instead),))
        for of, expiring in zip((" in the straight way", ""), EXPIRING, strict=True)
        for what, instead in (("is dropped", ""), ("is in seconds", expiring.replace("PE", "E")))
    ),
    Fault(
        "storing",
        "a TTL of millennia is not cut off",
        (
            ("min(wait + TTL_MARGIN, LARGEST)", "wait + TTL_MARGIN"),
            ("min(ms + TTL_MARGIN, LARGEST)", "ms + TTL_MARGIN"),
        ),
        ((KEPT, "return -(-ticks * limit.tick // 1000) + TTL_MARGIN"),),
        both=False,
        because="nobody waits so long",
    ),
    Fault(
        "storing",
        "an absent bucket is stored without its scale, in the straight way",
        (("if absent and absent[i] then", "if false then"),),
    ),
    Fault(
        "storing",
        "tostring in place of all digits",
        ((STORES, STORES.replace("balance", "tostring(balance)")),),
    ),
    Fault(
        "storing",
        "tostring in place of all digits, in the straight way",
        ((STORES_STRAIGHT, STORES_STRAIGHT.replace("balance", "tostring(balance)")),),
    ),
    Fault(
        "storing",
        "tostring in place of all digits of the time",
        ((STORES, STORES.replace(" last)", " tostring(last))")),),
    ),
    Fault(
        "storing",
        "the time of the call is stored",
        ((STORES, STORES.replace(" last)", " now)")),),
    ),
    Fault(
        "storing",
        "the time of the call is stored, in the straight way",
        ((STORES_STRAIGHT, STORES_STRAIGHT.replace(" last)", " now)")),),
    ),
)

FAULTS = (*REFILL, *JUDGING, *WAITS, *CLOCK, *CHANGES, *SEVERAL, *SETTLING, *STORING)
