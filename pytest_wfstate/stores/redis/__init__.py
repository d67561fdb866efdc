"""Stores on a Redis server: each change is one script, which the server runs as a whole or not at all."""

from pytest_wfstate.stores.redis.effects import RedisEffectStore
from pytest_wfstate.stores.redis.paused import RedisPausedStore
from pytest_wfstate.stores.redis.resume import RedisResumeStore
from pytest_wfstate.stores.redis.runs import RedisRunStore
from pytest_wfstate.stores.redis.settings import NotDurable
from pytest_wfstate.stores.redis.snapshots import RedisSnapshotStore

__all__ = [
    "NotDurable",
    "RedisEffectStore",
    "RedisPausedStore",
    "RedisResumeStore",
    "RedisRunStore",
    "RedisSnapshotStore",
]
