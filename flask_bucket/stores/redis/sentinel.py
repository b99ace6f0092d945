"""Sentinels: they are asked where the primary is, whenever a connection is made."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from redis import exceptions

from .connections import Address


class Sentinels:
    """The sentinels of one service. The one that answered last is asked first.

    :param kind: the class of connections to them, and
    :param settings: its arguments.
    """

    def __init__(
        self,
        kind: type[Any],
        settings: Mapping[str, Any],
        nodes: Sequence[Address],
        service: str,
    ) -> None:
        self._kind, self._settings = kind, settings
        self._nodes = tuple(nodes)
        self._service = service

    def primary(self, deadline: float) -> Address:
        """Return where the primary is.

        :raises ConnectionError: if no sentinel says so in time.
        """
        said = []
        for node in self._nodes:
            try:
                # Half of the time left for each, so that there is some left to connect.
                now = time.monotonic()
                return self._ask(node, now + (deadline - now) / 2)
            except exceptions.RedisError as error:
                said.append(f"{node[0]}:{node[1]}: {error}")
                self._nodes = (*(n for n in self._nodes if n != node), node)
        raise exceptions.ConnectionError(
            f"no sentinel knows the primary of {self._service!r} ({'; '.join(said)})"
        )

    def _ask(self, node: Address, deadline: float) -> Address:
        connection: Any = self._kind(host=node[0], port=node[1], **self._settings)
        try:
            connection.connect_by(deadline)
            connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            if not connection.can_read(max(0, deadline - time.monotonic())):
                raise exceptions.TimeoutError("no answer in time")
            answer = connection.read_response()
        finally:
            connection.disconnect()
        if answer is None:
            raise exceptions.ConnectionError("it does not know the service")
        host, port = answer
        return host.decode(), int(port)
