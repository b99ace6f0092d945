"""Token bucket rate limits for Flask, exact and shared by all workers, in Redis."""

from .answers import RateLimitExceeded
from .at_once import AtOnce
from .bans import Ban
from .clients import client_address, request_header
from .decisions import Charge, Decision, Outcome
from .errors import ConfigError, StoreUnavailable
from .extension import Limiter
from .limits import Limit
from .networks import client_network, networks
from .rules import Rule
from .signals import (
    client_banned,
    limit_exceeded,
    limit_low,
    store_recovered,
    store_unavailable,
)
from .stores.memory import MemoryStore
from .stores.redis import RedisStore

__all__ = [
    "AtOnce",
    "Ban",
    "Charge",
    "ConfigError",
    "Decision",
    "Limit",
    "Limiter",
    "MemoryStore",
    "Outcome",
    "RateLimitExceeded",
    "RedisStore",
    "Rule",
    "StoreUnavailable",
    "client_address",
    "client_banned",
    "client_network",
    "limit_exceeded",
    "limit_low",
    "networks",
    "request_header",
    "store_recovered",
    "store_unavailable",
]
