"""Faults in bans, and in charges that may take more than their cost."""

from __future__ import annotations

from tests.mutation.faults.fault import ROWS, Fault

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
