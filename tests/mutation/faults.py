"""The faults. Each replaces text that occurs exactly once in its file.

A fault in the script alone, or in the reference alone, makes the two disagree. The same fault in
both is a fault of the specification, and only the oracle in exact rationals can find it.
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
    #: The edits that plant it in the script, and those for the reference.
    lua: tuple[Edit, ...] = ()
    python: tuple[Edit, ...] = ()
    #: Whether clients could tell if both had it; and if not, why.
    both: bool = True
    because: str = ""
    #: Whether planting it once gives it to both, because they share the code or the time.
    alike: bool = False

    def planted(self) -> dict[str, dict[str, tuple[Edit, ...]]]:
        """Return the edits to make in each file, by where the fault is planted."""
        places: dict[str, dict[str, tuple[Edit, ...]]] = {}
        if self.lua:
            places["script"] = {LUA: self.lua}
        if self.python:
            places["reference"] = {PYTHON: self.python}
        if self.lua and self.python and self.both:
            places["both"] = {LUA: self.lua, PYTHON: self.python}
        return places


#: Where a refill fills a bucket, and where it does not.
FILLS = "if ticks * charge.step >= charge.full - tokens then\n"
FILLS_PYTHON = "if ticks * limit.step >= limit.full - tokens:"
FULL = "tokens, last_refill = charge.full, now"
FULL_PYTHON = "tokens, last_refill = limit.full, now"
REFILLS = "tokens, last_refill = tokens + ticks * charge.step, last_refill + ticks * charge.tick"

#: Where a bucket is absent.
ABSENT = "charge.tokens, charge.last_refill = charge.full, now"
ABSENT_PYTHON = "return State(limit.full, now, limit.scale), False"

REFILL = (
    Fault(
        "refill",
        "the remainder of a tick is dropped",
        ((REFILLS, REFILLS.replace("last_refill + ticks * charge.tick", "now")),),
        (("last_refill += ticks * limit.tick", "last_refill = now"),),
    ),
    Fault(
        "refill",
        "a tick counts before it has passed",
        (("math.floor(elapsed / charge.tick)", "math.ceil(elapsed / charge.tick)"),),
        (("elapsed // limit.tick", "-(-elapsed // limit.tick)"),),
    ),
    Fault(
        "refill",
        "a bucket refills beyond its capacity",
        ((FILLS, "if false then\n"),),
        ((FILLS_PYTHON, "if False:"),),
    ),
    Fault(
        "refill",
        "> for >= where a refill fills the bucket",
        ((FILLS, FILLS.replace(">=", ">")),),
        ((FILLS_PYTHON, FILLS_PYTHON.replace(">=", ">")),),
        both=False,
        because="a full bucket's last refill then lags by less than a tick, which is no token",
    ),
    Fault(
        "refill",
        "a full bucket goes on counting idle time",
        ((FULL, FULL.replace("now", "last_refill")),),
        ((FULL_PYTHON, FULL_PYTHON.replace("now", "last_refill")),),
    ),
    Fault(
        "refill",
        "a bucket fills to one part less",
        ((FULL, FULL.replace("full, now", "full - 1, now")),),
        ((FULL_PYTHON, FULL_PYTHON.replace("full, now", "full - 1, now")),),
    ),
    Fault(
        "refill",
        "an absent bucket is empty",
        ((ABSENT, ABSENT.replace("= charge.full", "= 0")),),
        ((ABSENT_PYTHON, ABSENT_PYTHON.replace("limit.full", "0")),),
    ),
)

SUFFICES = "wanted * scale <= charge.tokens"
SUFFICES_PYTHON = "wanted * charge.limit.scale <= state.tokens"

JUDGING = (
    Fault(
        "judging",
        "< for <= where the tokens just suffice",
        ((SUFFICES, SUFFICES.replace("<=", "<")),),
        ((SUFFICES_PYTHON, SUFFICES_PYTHON.replace("<=", "<")),),
    ),
    Fault(
        "judging",
        "a part less than the cost suffices",
        ((SUFFICES, SUFFICES.replace("<=", "- 1 <=")),),
        ((SUFFICES_PYTHON, SUFFICES_PYTHON.replace("<=", "- 1 <=")),),
    ),
    Fault(
        "judging",
        "the capacity is off by one",
        (("full = tonumber(ARGV[row + 2]) * scale", "full = (ARGV[row + 2] - 1) * scale"),),
    ),
    Fault(
        "judging",
        "a look at a bucket in debt is refused",
        (("affordable = charge.cost == 0 or ", "affordable = "),),
        (("affordable = charge.cost == 0 or ", "affordable = "),),
    ),
    Fault(
        "judging",
        "a refusal takes what it can",
        (("elseif allowed and charge.needed == 0 then", "elseif charge.needed == 0 then"),),
        (("    if allowed:\n        for (charge, _),", "    if True:\n        for (charge, _),"),),
    ),
    Fault(
        "judging",
        "a refusal writes what it looked at",
        (
            (
                "elseif refresh(charge, tokens, last_refill, stored) then\n    charge.changed",
                "else\n    refresh(charge, tokens, last_refill, stored)\n    charge.changed",
            ),
        ),
        (("if set_back:\n            self._changed", "if stored:\n            self._changed"),),
    ),
    Fault(
        "judging",
        "a peek writes",
        (("charge.changed and mode ~= 'peek'", "charge.changed"),),
    ),
)

#: Both answers say in Python how long to wait.
WAIT = "return -(-(balance - tokens) // limit.step) * limit.tick - (now - last_refill)"
NEVER = "if needed > limit.capacity:"

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
        python=((NEVER, NEVER.replace(">", ">=")),),
        alike=True,
    ),
    Fault(
        "waits",
        "a cost above the capacity has a wait",
        python=((NEVER, NEVER.replace("capacity", "capacity + 1")),),
        alike=True,
    ),
)

#: Where a clock that was set back is told from a late one, and what is done about it.
BACK = "set_back = elapsed < -STEP_TOLERANCE"
REBASE, REBASE_PYTHON = "    last_refill = now -- start over", "        last_refill = now\n"

CLOCK = (
    Fault(
        "clock",
        "the rebase is dropped",
        ((BACK, "set_back = false"),),
        ((BACK, "set_back = False"),),
    ),
    Fault(
        "clock",
        "a refusal does not keep the rebase",
        (("  return set_back\n", "  return false\n"),),
        (
            (
                "State(tokens, last_refill, limit.scale), set_back",
                "State(tokens, last_refill, limit.scale), False",
            ),
        ),
    ),
    Fault(
        "clock",
        "a clock set back fills the bucket",
        ((REBASE, "    tokens, last_refill = charge.full, now -- start over"),),
        ((REBASE_PYTHON, "        tokens, last_refill = limit.full, now\n"),),
    ),
    Fault(
        "clock",
        "a clock late by just the tolerance counts as set back",
        ((BACK, BACK.replace("<", "<=")),),
        ((BACK, BACK.replace("<", "<=")),),
    ),
    Fault(
        "clock",
        "a late timestamp is refilled from again",
        (
            (
                "  charge.tokens, charge.last_refill = tokens, last_refill\n",
                "  charge.tokens = tokens\n"
                "  charge.last_refill = elapsed < 0 and now or last_refill\n",
            ),
        ),
        (
            (
                "    return State(tokens, last_refill, limit.scale), set_back",
                "    last_refill = now if elapsed < 0 else last_refill\n"
                "    return State(tokens, last_refill, limit.scale), set_back",
            ),
        ),
    ),
    Fault(
        "clock",
        "a late timestamp takes a refill back",
        (("elseif elapsed >= 0 then", "else"),),
        (("elif elapsed >= 0:", "else:"),),
    ),
    Fault(
        "clock",
        "the server's microseconds are dropped",
        (("now = time[1] * 1000000 + time[2]", "now = time[1] * 1000000"),),
        alike=True,
    ),
)

CARRIED = "tokens if old == new else tokens * new // old"
RESCALES = "tokens = rescale(tokens, scale, charge.scale)"
ROUNDED = "return tokens < 0 and -result - (rest > 0 and 1 or 0) or result"

CHANGES = (
    Fault(
        "config change",
        "a balance is carried over rounded up",
        ((ROUNDED, "return tokens < 0 and -result or result + (rest > 0 and 1 or 0)"),),
        ((CARRIED, "tokens if old == new else -(-tokens * new // old)"),),
    ),
    Fault(
        "config change",
        "a debt is carried over rounded towards zero",
        ((ROUNDED, "return tokens < 0 and -result or result"),),
        ((CARRIED, "tokens * new // old if tokens > 0 else -(-tokens * new // old)"),),
    ),
    Fault(
        "config change",
        "a balance is not carried over",
        (("if scale ~= charge.scale then", "if false then"),),
        ((CARRIED, "tokens"),),
    ),
    Fault(
        "config change",
        "a changed limit fills the bucket",
        ((RESCALES, "tokens = charge.full"),),
        ((CARRIED, "tokens if old == new else EXACT"),),
    ),
    Fault(
        "config change",
        "a changed limit empties the bucket",
        ((RESCALES, "tokens = 0"),),
        ((CARRIED, "tokens if old == new else 0"),),
    ),
    Fault(
        "config change",
        "the clamp to a smaller capacity is dropped",
        (("math.min(tokens, charge.full)", "tokens"),),
        (("tokens = _bounded(_rescale(", "tokens = (lambda carried, limit: carried)(_rescale("),),
    ),
    Fault(
        "config change",
        "a product too large is formed",
        ((RESCALES, "tokens = math.floor(tokens * charge.scale / scale)"),),
    ),
    Fault(
        "config change",
        "the new scale is not stored",
        (
            ("'scale', charge.scale)", "'scale', charge.stored or charge.scale)"),
            ("charge.absent = not hash[1]", "charge.absent, charge.stored = not hash[1], stored"),
        ),
    ),
)

SEVERAL = (
    Fault(
        "multi-bucket",
        "only the first bucket can refuse",
        (("allowed and charge.kind ~= 'take'", "allowed and (charge.kind ~= 'take' or i > 1)"),),
        (
            (
                "allowed = not any(needed[: len(charges)])",
                "allowed = not any(needed[: len(charges)][:1])",
            ),
        ),
    ),
    Fault(
        "multi-bucket",
        "a key that comes twice is judged twice alone",
        (("local wanted = charge.wanted + charge.cost", "local wanted = charge.cost"),),
        (("self._wanted.get(charge.key, 0) + charge.cost", "charge.cost"),),
    ),
    Fault(
        "multi-bucket",
        "a key that comes twice is read twice",
        (("if KEYS[earlier] == key then", "if false then"),),
    ),
    Fault(
        "multi-bucket",
        "what was held is not given back",
        (("amount = allowed and 0 or charge.cost", "amount = 0"),),
        (("        self.add(charge, charge.cost)\n", ""),),
    ),
    Fault(
        "multi-bucket",
        "what was held is given back also when allowed",
        (("amount = allowed and 0 or charge.cost", "amount = charge.cost"),),
        (("    else:\n        for charge in held:", "    if True:\n        for charge in held:"),),
    ),
    Fault(
        "multi-bucket",
        "a wait forgets what was held of the same bucket",
        (("charge.needed + bucket.returned", "charge.needed"),),
        (("needed += self._returned.get(charge.key, 0)", "needed += 0"),),
    ),
    Fault(
        "multi-bucket",
        "a shadow limit refuses",
        (("allowed and charge.kind ~= 'take'", "false"),),
        (("allowed = not any(needed[: len(charges)])", "allowed = not any(needed)"),),
    ),
    Fault(
        "multi-bucket",
        "a shadow limit is not taken",
        (
            (
                "elseif allowed and charge.needed == 0 then",
                "elseif allowed and charge.needed == 0 and charge.kind == 'take' then",
            ),
        ),
        (
            (
                "        for (charge, _), lacking in zip(asked, needed, strict=True):\n"
                "            if not lacking:",
                "        for (charge, dry_run), lacking in zip(asked, needed, strict=True):\n"
                "            if not lacking and not dry_run:",
            ),
        ),
    ),
    Fault(
        "multi-bucket",
        "an unaffordable shadow limit stands in the way of the next",
        (("if affordable or charge.kind == 'take' then", "if true then"),),
        (("if affordable or not shadow:", "if True:"),),
    ),
)

BALANCE = "balance = _bounded(state.tokens + amount * limit.scale, limit)"
ADDED = "bucket.tokens + amount * bucket.scale"
GIVEN = f"local tokens = math.min({ADDED}, bucket.full)"
LOWEST = "bucket.tokens = math.max(tokens, bucket.full - LARGEST)"

SETTLING = (
    Fault(
        "settle",
        "giving back lifts a bucket above its capacity",
        ((GIVEN, f"local tokens = {ADDED}"),),
        ((BALANCE, "balance = state.tokens + amount * limit.scale"),),
    ),
    Fault(
        "settle",
        "settling leaves no debt",
        ((LOWEST, "bucket.tokens = math.max(tokens, 0)"),),
        ((BALANCE, BALANCE.replace("_bounded(", "max(0, _bounded(") + ")"),),
    ),
    Fault(
        "settle",
        "settling charges only the first bucket",
        (
            (
                "elseif allowed and charge.needed == 0 then",
                "elseif allowed and charge.needed == 0 and (mode ~= 'settle' or i == 1) then",
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
        (("    amount = -charge.cost\n", "    amount = -math.abs(charge.cost)\n"),),
        (
            (
                "for charge in charges:\n        buckets.add(charge, -charge.cost)",
                "for charge in charges:\n        buckets.add(charge, -abs(charge.cost))",
            ),
        ),
    ),
    Fault(
        "settle",
        "settling asks first",
        (("if mode ~= 'settle' and charge.kind ~= 'held' then", "if charge.kind ~= 'held' then"),),
    ),
    Fault(
        "settle",
        "a debt grows beyond what is exact",
        ((LOWEST, "bucket.tokens = tokens"),),
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
        (("(amount > 0 and key not in self._states)", "False"),),
        both=False,
        because="an absent bucket and a full one are the same",
    ),
)

KEPT = "return min(-(-ticks * limit.tick // 1000) + TTL_MARGIN, EXACT - 1)"
EXPIRES = "math.min(ms + TTL_MARGIN, LARGEST)"
EXPIRING = f"    call('PEXPIRE', key, {EXPIRES})\n"

STORING = (
    Fault(
        "storing",
        "the TTL is halved",
        ((EXPIRES, f"math.floor({EXPIRES} / 2)"),),
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
        ((EXPIRES, "TTL_MARGIN"),),
        ((KEPT, "return TTL_MARGIN"),),
    ),
    Fault("storing", "the TTL is dropped", ((EXPIRING, ""),)),
    Fault("storing", "the TTL is in seconds", ((EXPIRING, EXPIRING.replace("PE", "E")),)),
    Fault(
        "storing",
        "a TTL of millennia is not cut off",
        ((EXPIRES, "ms + TTL_MARGIN"),),
        ((KEPT, "return -(-ticks * limit.tick // 1000) + TTL_MARGIN"),),
        both=False,
        because="nobody waits so long",
    ),
    Fault(
        "storing",
        "the TTL counts each tick as a microsecond",
        (
            (
                "charge.tick == 1 and math.ceil(ticks / 1000) or ticks * (charge.tick / 1000)",
                "math.ceil(ticks / 1000)",
            ),
        ),
        ((KEPT, KEPT.replace("-ticks * limit.tick", "-ticks")),),
    ),
    Fault(
        "storing",
        "an absent bucket is stored without its scale",
        ((", 'scale', charge.scale)", ")"),),
    ),
    Fault(
        "storing",
        "tostring in place of all digits",
        (("'tokens', charge.tokens", "'tokens', tostring(charge.tokens)"),),
    ),
    Fault(
        "storing",
        "tostring in place of all digits of the time",
        (("'last_refill', charge.last_refill", "'last_refill', tostring(charge.last_refill)"),),
    ),
    Fault(
        "storing",
        "the time of the call is stored",
        (("'last_refill', charge.last_refill", "'last_refill', now"),),
    ),
)

FAULTS = (*REFILL, *JUDGING, *WAITS, *CLOCK, *CHANGES, *SEVERAL, *SETTLING, *STORING)
