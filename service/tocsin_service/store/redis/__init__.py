"""The shared store: one Redis, any number of web processes and workers."""

from tocsin_service.store.redis.connection import Address, connect
from tocsin_service.store.redis.store import RedisStore

__all__ = ["Address", "RedisStore", "connect"]
