"""Sentinels: each time a connection is made, they are asked for the primary."""

from __future__ import annotations

import time
from collections.abc import Mapping

from redis import exceptions

from .dialing import Address, Dialer, address
from .wire import packed


class Sentinels:
    """The sentinels of one service. The one that answered last is asked first.

    :param sentinels: where they are, and what connects to each.
    """

    def __init__(self, sentinels: Mapping[Address, Dialer], service: str) -> None:
        self._sentinels = sentinels
        self._nodes = tuple(sentinels)
        self._service = service

    def primary(self, deadline: float) -> Address:
        """Return where the primary is.

        :raises RedisError: if no sentinel says so in time.
        """
        said = []
        for node in self._nodes:
            try:
                # Half of the remaining time for each, so that some is left to connect.
                now = time.monotonic()
                return self._ask(node, now + (deadline - now) / 2)
            except exceptions.RedisError as error:
                said.append(f"{node[0]}:{node[1]}: {error}")
                self._nodes = (*(n for n in self._nodes if n != node), node)
        raise exceptions.ConnectionError(
            f"no sentinel knows the primary of {self._service!r} ({'; '.join(said)})"
        )

    def _ask(self, node: Address, deadline: float) -> Address:
        wire = self._sentinels[node].dial(deadline)
        try:
            answer = wire.call(
                packed("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service), deadline
            )
        finally:
            wire.close()
        if answer is None:
            raise exceptions.ConnectionError("it does not know the service")
        if not isinstance(answer, list) or len(answer) != 2:
            raise exceptions.InvalidResponse(f"not an address: {answer!r:.100}")
        return address(*answer)
