"""The facts that rules depend on, as far as a log tells them; the rest is assumed, and said."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from flask import Flask, Response

from ..bound import BoundRule, Facts, checked_key
from ..clients import KeyFunc, client_address, normal_address
from ..errors import ConfigError
from ..limits import Limit
from .states import is_constant, limits_now, name_of, reads_address
from .traffic import By


class Evidence:
    """The facts about requests that a log and an application tell, and the assumptions.

    :param by: the key in place of key functions that read more than a log holds: the address, or
        the user that the log names.
    """

    def __init__(self, app: Flask, by: By, ipv6_prefix: int) -> None:
        self._app = app
        self._by = by
        self._assumed: dict[str, None] = {}
        self.address = lru_cache(maxsize=100_000)(
            lambda text: normal_address(text, ipv6_prefix) or text
        )
        self._of_address = lru_cache(maxsize=100_000)(self._call_with_address)
        self._limits = lru_cache(maxsize=1000)(self._limits_now)
        self.deducts = lru_cache(maxsize=10_000)(self._call_for_deducts)

    @property
    def assumptions(self) -> list[str]:
        """The assumptions in place of facts that no log tells."""
        return list(self._assumed)

    def assume(self, text: str) -> None:
        """Note an assumption, once."""
        self._assumed[text] = None

    def key(self, key_func: Callable[[], Any], address: str, user: str) -> str | None:
        """Return the key of a client; None if the request is left out of the limit."""
        if key_func is client_address:
            return self.address(address)
        if reads_address(key_func):
            return checked_key(self._of_address(key_func, address), key_func)
        if is_constant(key_func):
            return checked_key(key_func(), key_func)
        instead = "address" if self._by == "address" else "user in the log"
        self.assume(f"The key that {name_of(key_func)} returns: the {instead} is used.")
        return self.address(address) if self._by == "address" else user or None

    def holds(self, condition: Callable[[], Any], what: str, address: str) -> bool:
        """Return whether a condition holds that frees a request of limits."""
        if reads_address(condition):
            return bool(self._of_address(condition, address))
        self.assume(f"What {what} {name_of(condition)} returns: False is assumed.")
        return False

    def cost(self, bound: BoundRule) -> int:
        """Return the tokens that a request costs."""
        if isinstance(bound.cost, int):
            return bound.cost
        self.assume(f"The cost that {name_of(bound.cost)} returns: 1 is assumed.")
        return 1

    def limits(self, bound: BoundRule) -> tuple[Limit, ...]:
        """Return the limits of a rule whose limits are a function."""
        return self._limits(bound)

    def _call_with_address(self, function: Callable[[], Any], address: str) -> Any:
        with self._app.test_request_context(environ_base={"REMOTE_ADDR": address}):
            return function()

    def _limits_now(self, bound: BoundRule) -> tuple[Limit, ...]:
        with self._app.app_context():
            found = limits_now(bound)
        instead = "the one that it returns now is used"
        if found is None:
            instead = "it is left out, because the function needs a request"
        self.assume(f"The limit that {name_of(bound.rule.limits)} returns: {instead}.")
        return found or ()

    def _call_for_deducts(self, deduct_when: Callable[[Response], Any], status: int) -> bool:
        """Return whether a rule keeps the tokens of a response with this status."""
        name = name_of(deduct_when)
        try:
            with self._app.app_context():
                deducts = deduct_when(Response(status=status or 200))
        except Exception as error:  # whatever the application's function raises
            self.assume(
                f"What deduct_when {name} returns: True is assumed, because the function needs "
                f"more than a status ({type(error).__name__})."
            )
            return True
        self.assume(f"What deduct_when {name} returns: it is asked with the status alone.")
        if not isinstance(deducts, bool):
            raise ConfigError(f"{name} returned {deducts!r}; expected True or False.")
        return deducts


class LogFacts(Facts):
    """The facts of one request in a log."""

    def __init__(self, evidence: Evidence, address: str, user: str) -> None:
        super().__init__()
        self._evidence = evidence
        self._address = address
        self._user = user

    def client(self, bound: BoundRule) -> str | None:
        exempt_when = bound.exempt_when
        if exempt_when is not None and self._evidence.holds(
            exempt_when, "exempt_when", self._address
        ):
            return None
        return self.client_by(bound.key_func)

    def client_by(self, key_func: KeyFunc) -> str | None:
        return self._evidence.key(key_func, self._address, self._user)

    def cost(self, bound: BoundRule) -> int:
        return self._evidence.cost(bound)

    def limits(self, bound: BoundRule) -> tuple[Limit, ...]:
        return self._evidence.limits(bound)
