"""Faults in the slots of requests at once."""

from __future__ import annotations

from tests.mutation.faults.fault import SLOTS, Fault

HOLDS = "slots.held > 0 and tonumber(call('ZSCORE', key, member) or now) > now"
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
