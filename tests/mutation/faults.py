"""The faults. Each replaces text that occurs exactly once in its file.

A fault in the script alone, or in the reference alone, makes the two disagree. The same fault in
both is a fault of the specification, and only the oracle in exact rationals can find it.
"""

from __future__ import annotations

from dataclasses import dataclass

LUA, PYTHON = "bucket.lua", "bucket.py"
ROWS, SLOTS = "rows.py", "slots.py"
#: The arguments and the reply of the script. A fault in there is one of the script alone.
CALLS = "stores/redis/script.py"

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
    #: The module of the reference.
    module: str = PYTHON

    def planted(self) -> dict[str, dict[str, tuple[Edit, ...]]]:
        """Return the edits to make in each file, by where the fault is planted."""
        places: dict[str, dict[str, tuple[Edit, ...]]] = {}
        if self.lua:
            places["script"] = {LUA: self.lua}
        if self.python:
            places["reference"] = {self.module: self.python}
        if self.lua and self.python and self.both:
            places["both"] = {LUA: self.lua, self.module: self.python}
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

#: Where what is affordable is taken.
TAKES_PYTHON = 'elif row.role != "held" and allowed and not row.needed:'
SUFFICES = "wanted * scale <= charge.tokens"
SUFFICES_PYTHON = "wanted * limit.scale <= state.tokens"

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
        ((TAKES_PYTHON, TAKES_PYTHON.replace("and allowed ", "")),),
    ),
    Fault(
        "judging",
        "a refusal writes what it looked at",
        (
            (
                "elseif refresh(charge, tokens, last_refill, stored) then\n      charge.changed",
                "else\n      refresh(charge, tokens, last_refill, stored)\n      charge.changed",
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
ROUNDED = "return whole * new + quotient"

CHANGES = (
    Fault(
        "config change",
        "a balance is carried over rounded up",
        ((ROUNDED, f"{ROUNDED} + (rest > 0 and 1 or 0)"),),
        ((CARRIED, "tokens if old == new else -(-tokens * new // old)"),),
    ),
    Fault(
        "config change",
        "a debt is carried over rounded towards zero",
        ((ROUNDED, f"{ROUNDED} + (tokens < 0 and rest > 0 and 1 or 0)"),),
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

REFUSES = "allowed = allowed and (charge.needed == 0 or role ~= 'take')"
REFUSES_PYTHON = 'allowed = not any(row.needed for row in rows if row.role == "take")'
RETURNS_PYTHON = 'if row.role == "held" and not allowed:'

SEVERAL = (
    Fault(
        "multi-bucket",
        "only the first bucket can refuse",
        ((REFUSES, REFUSES.replace("~= 'take'", "~= 'take' or i > 1")),),
        ((REFUSES_PYTHON, REFUSES_PYTHON.replace("in rows", "in rows[:1]")),),
    ),
    Fault(
        "multi-bucket",
        "a key that comes twice is judged twice alone",
        (("local wanted = charge.wanted + charge.cost", "local wanted = charge.cost"),),
        (("self._wanted.get(key, 0) + charge.cost", "charge.cost"),),
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
        ((RETURNS_PYTHON, "if False:"),),
    ),
    Fault(
        "multi-bucket",
        "what was held is given back also when allowed",
        (("amount = allowed and 0 or charge.cost", "amount = charge.cost"),),
        ((RETURNS_PYTHON, RETURNS_PYTHON.replace(" and not allowed", "")),),
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
        ((REFUSES, REFUSES.replace(" or role ~= 'take'", "")),),
        ((REFUSES_PYTHON, REFUSES_PYTHON.replace(' if row.role == "take"', "")),),
    ),
    Fault(
        "multi-bucket",
        "a shadow limit is not taken",
        (
            (
                "elseif allowed and charge.needed == 0 then",
                "elseif allowed and charge.needed == 0 and charge.role == 'take' then",
            ),
        ),
        ((TAKES_PYTHON, TAKES_PYTHON.replace('!= "held"', '== "take"')),),
    ),
    Fault(
        "multi-bucket",
        "an unaffordable shadow limit stands in the way of the next",
        (("if affordable or role == 'take' then", "if true then"),),
        (('if affordable or row.role == "take":', "if True:"),),
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
                "for charge in charges:\n        if charge.kind",
                "for charge in charges[:1]:\n        if charge.kind",
            ),
        ),
    ),
    Fault(
        "settle",
        "what is given back is taken",
        (("    amount = -charge.cost\n", "    amount = -math.abs(charge.cost)\n"),),
        (("buckets.add(charge, -charge.cost)", "buckets.add(charge, -abs(charge.cost))"),),
    ),
    Fault(
        "settle",
        "settling asks first",
        (("= mode ~= 'settle' and role ~= 'held'", "= role ~= 'held'"),),
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
        (("amount > 0 and not bucket.absent", "amount > 0"),),
        (("(amount > 0 and key not in self._states)", "False"),),
        both=False,
        because="an absent bucket and a full one are the same",
    ),
)

KEPT = "return min(-(-us // 1000) + TTL_MARGIN, EXACT - 1)"
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
        ((KEPT, "return -(-us // 1000) + TTL_MARGIN"),),
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
        (("// limit.step) * limit.tick\n    else", "// limit.step)\n    else"),),
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

#: Where a ban counts a refusal, and where it begins.
COUNTS = "extra = refused and bucket.tokens >= bucket.scale and 1 or 0"
COUNTS_PYTHON = "if state.tokens < limit.scale or key in self._counted:"
BANNED = "not (kinds.take or kinds[charge.role] or bucket.counted)"
BANNED_PYTHON = ' and not banned & {"take", ban.role}'
BEGINS = "if kind == 'ban' and bucket.tokens < bucket.scale then"
BEGINS_PYTHON = "if state.tokens < limit.scale:\n            ban.needed = 1"
DEBT = "local debt = math.floor(charge.most / bucket.tick) * bucket.step"
DEBT_PYTHON = "debt = ban.charge.lasts // limit.tick * limit.step"

BANS = (
    Fault(
        "ban",
        "a request that is allowed is counted",
        ((COUNTS, COUNTS.replace("refused and ", "")),),
        (("if any(refused) and", "if"),),
        module=ROWS,
    ),
    Fault(
        "ban",
        "a refusal of any other limit is counted",
        (
            (
                "refused = refused or charges[tonumber(place)].needed > 0\n    end",
                "refused = place\n    end\n    refused = not allowed",
            ),
        ),
        (("row.needed and ban.charge.key in row.charge.counts_for", "row.needed"),),
        module=ROWS,
    ),
    Fault(
        "ban",
        "a refusal is counted once for each charge",
        ((BANNED, BANNED.replace(" or bucket.counted", "")),),
        ((COUNTS_PYTHON, COUNTS_PYTHON.replace(" or key in self._counted", "")),),
        both=False,
        because="no request is charged twice for one ban",
    ),
    Fault(
        "ban",
        "a request that a ban refuses is counted by others",
        ((BANNED, "not bucket.counted"),),
        ((BANNED_PYTHON, ""),),
        module=ROWS,
    ),
    Fault(
        "ban",
        "hammering begins the ban anew",
        ((COUNTS, "extra = refused and 1 or 0"), (BANNED, "not bucket.counted")),
        ((COUNTS_PYTHON, "if key in self._counted:"),),
    ),
    Fault(
        "ban",
        "a ban of less than a token refuses nothing",
        (
            (
                "charge.needed = charge.tokens < scale and 1",
                "charge.needed = charge.tokens < 0 and 1",
            ),
        ),
        (
            (
                "return 0 if state.tokens >= limit.scale else 1",
                "return 0 if state.tokens >= 0 else 1",
            ),
        ),
    ),
    Fault(
        "ban",
        "a ban begins a refusal too late",
        ((BEGINS, BEGINS.replace("< bucket.scale", "< 0")),),
        ((BEGINS_PYTHON, BEGINS_PYTHON.replace("< limit.scale", "< 0")),),
    ),
    Fault(
        "ban",
        "a ban lasts a tick too long",
        ((DEBT, f"{DEBT} + bucket.step"),),
        ((DEBT_PYTHON, f"{DEBT_PYTHON} + limit.step"),),
    ),
    Fault(
        "ban",
        "a ban is counted from the last refill",
        (("bucket.last_refill, charge.needed = now, 1", "charge.needed = 1"),),
        (
            (
                "limit.scale - debt, limit), self._now,",
                "limit.scale - debt, limit), state.last_refill,",
            ),
        ),
    ),
    Fault(
        "ban",
        "the refusal that begins a ban does not tell its end",
        (("bucket.last_refill, charge.needed = now, 1", "bucket.last_refill = now"),),
        (("            ban.needed = 1\n", ""),),
    ),
)

EXTRA = "extra = math.min(charge.most - charge.cost, math.floor(bucket.tokens / bucket.scale))"

#: Where more than the cost is taken, and where a rest is given back.
MORE = "charge.taken, bucket.tokens = charge.taken + extra, bucket.tokens - extra * bucket.scale"
REST = "math.min(charge.tokens + charge.extra * scale, charge.full)"
REST_PYTHON = "_bounded(state.tokens + charge.rest * limit.scale, limit)"

UP_TO = (
    Fault(
        "up to",
        "more is taken than there is",
        ((EXTRA, EXTRA.replace("floor", "ceil")),),
        (("min(most, state.tokens // limit.scale)", "min(most, -(-state.tokens // limit.scale))"),),
    ),
    Fault(
        "up to",
        "the cost comes on top of the maximum",
        ((EXTRA, EXTRA.replace("charge.most - charge.cost", "charge.most")),),
        (("most = (charge.up_to or 0) - charge.cost", "most = charge.up_to or 0"),),
    ),
    Fault(
        "up to",
        "a maximum below the cost gives tokens back",
        (("if extra > 0 then", "if extra ~= 0 then"),),
        (
            (
                "-max(0, min(most, state.tokens // limit.scale))",
                "-min(most, state.tokens // limit.scale)",
            ),
        ),
    ),
    Fault(
        "up to",
        "a refused request takes more than it costs",
        (
            (
                "charge.role ~= 'held' and allowed and charge.needed",
                "charge.role ~= 'held' and charge.needed",
            ),
        ),
        (
            (
                'row.role != "held" and allowed and not row.needed:\n            row.taken +=',
                'row.role != "held" and not row.needed:\n            row.taken +=',
            ),
        ),
    ),
    Fault(
        "up to",
        "what is taken beyond the cost is not told",
        ((MORE, MORE.replace("charge.taken + extra", "charge.taken")),),
        (("row.taken += buckets.take_up_to", "buckets.take_up_to"),),
    ),
    Fault(
        "up to",
        "what is taken beyond the cost stays in the bucket",
        ((MORE, MORE.replace("- extra * bucket.scale", "")),),
    ),
    Fault(
        "up to",
        "a rest is not given back",
        (("charge.kind == 'up-to' and charge.extra ~= '0'", "false"),),
        (("        if charge.rest:\n", "        if False:\n"),),
    ),
    Fault(
        "up to",
        "a rest lifts a bucket above its capacity",
        ((REST, REST.removeprefix("math.min(").removesuffix(", charge.full)")),),
        ((REST_PYTHON, REST_PYTHON.removeprefix("_bounded(").removesuffix(", limit)")),),
    ),
    Fault(
        "up to",
        "a rest of an absent bucket writes it",
        (("charge.extra ~= '0' and not charge.absent", "charge.extra ~= '0'"),),
        (
            (
                "        if charge.key in self._states:\n            tokens",
                "        if True:\n            tokens",
            ),
        ),
        both=False,
        because="an absent bucket and a full one are the same",
    ),
)

#: What the reply tells of each charge.
TOLD = "reply[4 * i - 1], reply[4 * i], reply[4 * i + 1] = "
ANOTHER = "    refresh(charge, bucket.tokens, bucket.last_refill, bucket.scale)\n"

REPLY = (
    Fault(
        "reply",
        "the cost is told as taken, whether it was or not",
        ((f"{TOLD}charge.taken", f"{TOLD}charge.cost"),),
        (("needed, row.taken, tokens", "needed, charge.cost, tokens"),),
    ),
    Fault(
        "reply",
        "the last refill of the first bucket is told for all",
        (("charge.tokens, charge.last_refill\nend", "charge.tokens, charges[1].last_refill\nend"),),
    ),
    Fault(
        "reply",
        "two limits of one bucket are told in the parts of one",
        ((ANOTHER, "    charge.tokens, charge.last_refill = bucket.tokens, bucket.last_refill\n"),),
        (("if limit is not charge.limit:", "if False:"),),
        both=False,
        because="nobody gives one key to two limits",
    ),
    Fault(
        "reply",
        "the rows of dry-run charges are read as those held",
        python=(("zip(held, rows[place:], strict=True)", "zip(held, rows[-1:], strict=False)"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban among what is held counts, and is not told",
        python=(('if charge.kind == "ban" and taken:', "if False:"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban counts the refusals of dry-run limits",
        python=(('("take", "shadow") if role == "shadow" else ("take",)', '("take", "shadow")'),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a dry-run ban counts no refusals of dry-run limits",
        python=(('("take", "shadow") if role == "shadow" else ("take",)', '("take",)'),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban counts the refusals of the charge before its own",
        python=(("enumerate(roles, start=1)", "enumerate(roles, start=2)"),),
        module=CALLS,
    ),
)

HOLDS = "slots.holds[member] or tonumber(call('ZSCORE', key, member) or now) > now"
CHANGES_SLOT = "amount ~= 0 and (slots.holds[member] == true) == (amount > 0)"
FREED = "call('ZADD', KEYS[i], amount < 0 and charge.free_at or now, member)"
FREE_EXPIRES = (
    "      call('PEXPIRE', key, math.min(math.ceil((last - now) / 1000) + TTL_MARGIN, LARGEST))\n"
)

AT_ONCE = (
    Fault(
        "slots",
        "one slot more is held than there are",
        (("* scale < charge.full and 0", "* scale <= charge.full and 0"),),
        ((">= charge.limit.capacity", "> charge.limit.capacity"),),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "two members of one call share the last slot",
        (("slots.wanted = slots.wanted + 1 - charge.needed", "slots.wanted = 0"),),
        ((" + len(self._wanted) >=", " >="),),
        both=False,
        because="a request is one member",
        module=SLOTS,
    ),
    Fault(
        "slots",
        "a slot is held for a microsecond too long",
        (("call('ZCOUNT', key, now + 1, '+inf')", "call('ZCOUNT', key, now, '+inf')"),),
        (("if free > now}", "if free >= now}"),),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "the same member holds a second slot",
        ((HOLDS, "false"),),
        (("if charge.member in self.holders or charge.member in self._wanted:", "if False:"),),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "a slot that is given back stays held",
        ((FREED, FREED.replace("amount < 0 and charge.free_at or now", "charge.free_at")),),
        (("            del self.holders[charge.member]\n", ""),),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "a slot held for too long is not cut",
        (("for n = 1, mode == 'peek' and 0 or #late do", "for n = 1, 0 do"),),
        (("if free > latest:", "if False:"),),
        both=False,
        because="the oracle's clock is not set back",
        module=SLOTS,
    ),
    Fault(
        "slots",
        "holders whose time is over stay in the set",
        (("      call('ZREMRANGEBYSCORE', key, '-inf', now)\n", ""),),
    ),
    Fault("slots", "the TTL of slots is dropped", ((FREE_EXPIRES, ""),)),
    Fault(
        "slots",
        "the first slot to be free is told in place of the last",
        (("call('ZRANGE', key, -1, -1, 'WITHSCORES')", "call('ZRANGE', key, 0, 0, 'WITHSCORES')"),),
        (("max([now, *holders.values()])", "min([*holders.values()], default=now)"),),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "giving back what is not held frees a slot",
        (
            (
                "(slots.holds[member] == true) == (amount > 0)",
                "(amount > 0 or not slots.holds[member] or slots.holds[member] == 'soon')",
            ),
        ),
    ),
    Fault(
        "slots",
        "holding a slot again extends its time",
        (
            (
                f"if slots and {CHANGES_SLOT} then",
                "if slots and amount < 0 and slots.holds[member] == true then\n"
                "    call('ZADD', KEYS[i], charge.free_at, member)\n"
                f"  elseif slots and {CHANGES_SLOT} then",
            ),
        ),
        (
            (
                "if amount == 0 or holds == (amount < 0):",
                "if holds and amount < 0:\n"
                "            self.holders[charge.member] = self._free_at(charge)\n"
                "        if amount == 0 or holds == (amount < 0):",
            ),
        ),
        module=SLOTS,
    ),
    Fault(
        "slots",
        "a refused request keeps the slot that it held before",
        (
            (
                "amount = allowed and 0 or charge.cost",
                "amount = (allowed or slots) and 0 or charge.cost",
            ),
        ),
        (
            (
                'if row.role == "held" and not allowed:',
                'if row.role == "held" and not allowed and row.charge.kind != "slot":',
            ),
        ),
    ),
    Fault(
        "slots",
        "a peek holds a slot",
        (("if mode ~= 'peek' then -- whoever", "if true then -- whoever"),),
    ),
)

FAULTS = (
    *(*REFILL, *JUDGING, *WAITS, *CLOCK, *CHANGES, *SEVERAL, *SETTLING, *STORING),
    *(*BANS, *UP_TO, *AT_ONCE, *REPLY),
)
