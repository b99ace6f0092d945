"""The only package that knows Redis; everyone else speaks the protocol of ``stores.base``."""

from .store import RedisStore

__all__ = ["RedisStore"]
