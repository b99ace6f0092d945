"""Faults in a call: several charges, settling, storing, and the reply."""

from __future__ import annotations

from tests.mutation.faults.fault import CALLS, TAKES_PYTHON, Fault

COUNTED = '(*charges, *shadow) if role == "shadow" else charges'
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
        "the answers to the charges asked are read as those to the ones held",
        python=(("zip(held, answers[-len(held) :], strict=True)", "zip(held, answers)"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban among what is held counts, and is not told",
        python=(('if c.kind == "ban" and a[1]]', "if False]"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban counts the refusals of dry-run limits",
        python=((COUNTED, "(*charges, *shadow)"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a dry-run ban counts no refusals of dry-run limits",
        python=((COUNTED, "charges"),),
        module=CALLS,
    ),
    Fault(
        "reply",
        "a ban counts the refusals of the charge before its own",
        python=(("enumerate(counted, start=1)", "enumerate(counted, start=2)"),),
        module=CALLS,
    ),
)
