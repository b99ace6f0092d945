"""Faults in one bucket: refilling, judging, waiting, clocks that step, and limits that change."""

from __future__ import annotations

from tests.mutation.faults.fault import TAKES_PYTHON, Fault

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
