"""The checks of ``flask bucket doctor`` that look at limits on requests at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..at_once import AtOnce
from ..decisions import Charge
from ..enforcing import Enforcer
from ..errors import StoreUnavailable
from ..limits import Limit
from ..stores.base import innermost
from .findings import Finding
from .server_checks import probe
from .states import routes


def at_once_checks(state: Enforcer, timeout: int | None) -> Iterator[Finding]:
    """Check whether slots can be held, and for as long as the server lets a request run.

    :param timeout: the server's, in seconds; 0 if it has none, None if that is not known.
    """
    found: dict[AtOnce, None] = {}
    for route in routes(state.app):
        for bound in state.planner.plan(route.endpoint, route.method).bounds:
            limits = [limit for limit, *_ in bound.fixed or ()]
            found |= dict.fromkeys(limit for limit in limits if isinstance(limit, AtOnce))
    if found:
        yield from _holding(state)
    for limit in found:
        holds = float(limit.holds)
        if timeout is not None and (timeout == 0 or holds < timeout):
            runs = f"for up to {timeout} s" if timeout else "without end"
            yield Finding(
                "FB501",
                "warning",
                f"gunicorn lets a request run {runs}, but {limit} counts it for {holds:g} s. After "
                "that, more requests may run at once than the limit says.",
                f"Set holds to {timeout}."
                if timeout
                else "Set a timeout in gunicorn, and set holds to the same.",
            )


def _holding(state: Enforcer) -> Iterator[Finding]:
    """Hold a slot of no client: only that tries the permissions of the script itself."""
    store, slot = innermost(state.store), Charge(AtOnce(1), f"{probe(state)}-slot", kind="slot")
    try:
        store.peek([Charge(Limit(1, 1), f"{probe(state)}-bucket")])
    except StoreUnavailable:
        return  # the server is out of reach for buckets too, which other checks report
    try:
        store.take([slot])
        store.settle([slot.given_back()])
    except StoreUnavailable as error:
        yield Finding(
            "FB502",
            "error",
            f"The server cannot keep slots: {error.reason}",
            "Allow the user to run ZADD, ZCOUNT, ZRANGE, ZRANGEBYSCORE, ZREMRANGEBYSCORE and "
            f"ZSCORE on keys that begin with {state.spelling.prefix}: (ACL SETUSER).",
        )


def timeout_in(environment: Mapping[str, str]) -> int | None:
    """Return gunicorn's timeout in seconds; None if the environment does not say it."""
    arguments = environment.get("GUNICORN_CMD_ARGS", "")
    told = re.search(r"(?:^|\s)(?:-t|--timeout)[\s=]*(\d+)", arguments)
    return int(told[1]) if told else None
