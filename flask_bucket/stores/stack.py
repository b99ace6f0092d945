"""The stores of an application: one wrapped around another, as its settings say."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..config import Config
from ..errors import ConfigError
from ..masking import shown
from .base import Store
from .leases import LeaseStore
from .memory import MemoryStore
from .outage import OutageStore, Policy
from .redis import RedisStore
from .refusals import RefusalStore


def stacked(
    config: Config,
    given: object,
    key_prefix: str,
    *,
    on_outage: Callable[[str], object],
    on_recovery: Callable[[], object],
) -> Store:
    """Make the store that the settings ask for, with those that wrap it.

    :param given: a URL, a client of redis-py or a store. The setting BUCKET_REDIS_URL wins over
        it. If there is neither, the variable FLASK_BUCKET_REDIS_URL names the server, and
        without that the buckets are kept in this process.
    :raises ConfigError: if it is none of these.
    """
    given = given if config.redis_url is None else config.redis_url
    if given is None:
        given = os.environ.get("FLASK_BUCKET_REDIS_URL") or None
    if given is None or given == "memory://":
        return MemoryStore()
    if isinstance(given, MemoryStore):
        return given
    policy: Policy = config.on_error  # type: ignore[assignment]  # checked when it was loaded
    store: Store = OutageStore(
        _kept_in(config, given, key_prefix),
        policy,
        recovery_interval=config.recovery_interval,
        local_share=config.local_share,
        on_outage=on_outage,
        on_recovery=on_recovery,
    )
    if config.known_workers:
        store = LeaseStore(store, config.known_workers)
    return RefusalStore(store, config.refusal_cache) if config.refusal_cache else store


def _kept_in(config: Config, given: object, key_prefix: str) -> Store:
    """Return the innermost store, which keeps the buckets."""
    if isinstance(given, str):
        return RedisStore.from_url(
            given,
            timeout=config.timeout,
            connect_timeout=config.connect_timeout,
            max_connections=config.max_connections,
            key_prefix=key_prefix,
            **config.redis_options,
        )
    if isinstance(given, Store):
        return given
    if callable(getattr(given, "execute_command", None)):
        return RedisStore(given, key_prefix)  # type: ignore[arg-type]  # it has a client's method
    raise ConfigError(
        f"redis is a URL, a client of redis-py or a store, not {shown(given)}. For one process "
        "alone, leave it out."
    )
