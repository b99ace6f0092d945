"""LimitDecorator: the object that ``limiter.limit(...)`` returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .decorators import Registry, Target
from .errors import ConfigError
from .rules import Rule


class LimitDecorator:
    """The decorator that ``limiter.limit(...)`` returns. In a ``with`` statement, it charges the
    block. It holds no state, so that threads may share it."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        *,
        registry: Registry,
        put_on: Callable[[tuple[Rule, ...], Any], Any],
        block: tuple[Callable[[tuple[Rule, ...]], None], Callable[[tuple[Rule, ...]], None]],
    ) -> None:
        self.rules, self.registry = rules, registry
        self._put_on = put_on
        self._enter, self._leave = block

    def __call__(self, target: Target) -> Target:
        limited: Target = self._put_on(self.rules, target)
        return limited

    def __enter__(self) -> None:
        for rule in self.rules:
            if rule.scope is None:
                raise ConfigError(
                    "A block that is limited needs a scope, since nothing else tells it from "
                    "others: with limiter.limit('1/minute', scope='import')."
                )
        self._enter(self.rules)

    def __exit__(self, *_: object) -> None:
        self._leave(self.rules)

    @property
    def __name__(self) -> str:
        raise ConfigError(
            "@limiter.limit is written with its limit, as @limiter.limit('5/second'); here it was "
            f"put on {self.rules[0].rule!r} as it stands."
        )
