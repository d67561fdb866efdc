"""Receipts: a change that is sent again is made once, and a sending that arrives late changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pytest_wfstate import LostConnection, NotFound, RedisPausedStore, Server, samples
from pytest_wfstate.stores.redis import client as client_module
from tests.unit.stores.handles import call as called
from tests.unit.stores.redis.scripts import EFFECTS, PAUSED, RESUME, RUNS, Kind, direct, dump, outcomes
from tests.unit.stores.redis.sendings import NOTHING_SENT, Meanwhile, each


class Late:
    """Holds the first sending of the next change back: the second is made at once, the first when it is let go."""

    def __init__(self, store: Any) -> None:
        self._send = store._client._send
        self._held: tuple[Any, ...] | None = None
        store._client._send = self

    def __call__(self, command: str, *args: Any, **_: Any) -> Any:
        if self._held is None and b":receipt:" in str(args).encode():
            self._held = (command, *args)
            raise redis.ConnectionError("held back on the way")
        return self._send(command, *args)

    def arrive(self) -> None:
        if self._held is not None:  # else the call has changed nothing, by any script
            self._send(*self._held)


@pytest.fixture
def pair(redis_server: Server) -> Iterator[Callable[[Kind], tuple[Any, Any]]]:
    opened = []

    def two(kind: Kind) -> tuple[Any, Any]:
        one = kind.open(redis_server.url)
        opened.extend([one, kind.open(redis_server.url, one._prefix)])
        for store in opened:
            outcomes(store, [kind.calls("warm")[0]])
        return opened[0], opened[1]

    yield two
    for store in opened:
        store.close()


def test_a_save_that_is_sent_again_does_not_pause_what_was_claimed(pair: Any) -> None:
    one, other = pair(PAUSED)
    Meanwhile(one, lambda: other.claim("a"))
    one.save(samples.paused("a"))
    assert one.list() == []


def test_a_claim_that_is_sent_again_has_its_record(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    seen = []
    Meanwhile(one, lambda: seen.append(other.claim("a")))
    assert one.claim("a") == samples.paused("a")
    assert seen == [None]


def test_a_claim_that_is_sent_again_does_not_take_what_was_recovered(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, other.recover_orphaned)
    assert one.claim("a") == samples.paused("a")
    assert one.list() == ["a"]


def test_a_recovery_that_is_sent_again_counts_what_it_did(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    other.claim("a")
    Meanwhile(one, lambda: other.claim("a"))
    assert one.recover_orphaned() == 1
    assert one.list() == []


def test_a_complete_that_is_sent_again_frees_no_new_claim(pair: Any) -> None:
    """It is of a worker that was restarted: one that names no owner."""
    one, other = pair(PAUSED)
    other.save(samples.paused("a"))
    other.claim("a")

    def start_again() -> None:
        other.save(samples.paused("a"))
        other.claim("a")

    Meanwhile(one, start_again)
    one.complete("a")
    assert other.recover_orphaned() == 1


def test_a_remove_that_is_sent_again_removes_nothing_new(pair: Any) -> None:
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, lambda: other.save(samples.paused("a", iterations=2)))
    one.remove("a")
    assert one.load("a") == samples.paused("a", iterations=2)


def test_a_checkpoint_that_is_sent_again_loses_no_mark(pair: Any) -> None:
    one, other = pair(EFFECTS)
    Meanwhile(one, lambda: called(other, "mark_step_complete", "a", "use-1", samples.effect("use-1")))
    called(one, "save_checkpoint", samples.checkpoint("a"))
    assert called(one, "load_checkpoint", "a").is_completed("use-1")


def test_a_mark_that_is_sent_again_brings_no_task_back(pair: Any) -> None:
    one, other = pair(EFFECTS)
    Meanwhile(one, lambda: called(other, "delete_checkpoint", "a"))
    called(one, "mark_step_complete", "a", "use-1", samples.effect("use-1"))
    assert called(one, "load_checkpoint", "a") is None


def test_a_delete_that_is_sent_again_deletes_nothing_new(pair: Any) -> None:
    one, other = pair(RESUME)
    one.save(samples.resume_point("a", step=1))
    Meanwhile(one, lambda: other.save(samples.resume_point("a", step=2)))
    one.delete("a")
    assert one.load("a") == samples.resume_point("a", step=2)


def test_an_update_that_is_sent_again_does_not_undo_a_later_one(pair: Any) -> None:
    one, other = pair(RUNS)
    called(one, "create_run", samples.run("a"))
    Meanwhile(one, lambda: called(other, "update_context", "a", "later"))
    called(one, "update_context", "a", "first")
    assert called(one, "get_run", "a").context == "later"


@each
def test_a_first_sending_that_arrives_late_changes_nothing(redis_server: Server, kind: Kind) -> None:
    """Whatever the result of the second, and whatever others have done since."""
    with direct(redis_server) as client, kind.open(redis_server.url) as store:
        seen = [dump(client, store)]
        for call in kind.calls("a"):
            with kind.open(redis_server.url, store._prefix) as other:
                late = Late(other)
                outcomes(other, [call])
                seen.append(dump(client, store))
                for state in seen:
                    put(client, store, state)
                    before = content(client, store)
                    late.arrive()
                    assert content(client, store) == before, call
                put(client, store, seen[-1])


def put(client: Any, store: Any, state: dict[bytes, bytes]) -> None:
    """Restore a store to what it held when `state` was dumped."""
    client.delete("nothing", *dump(client, store))
    for key, dumped in state.items():
        client.restore(key, 0, dumped)


def content(client: Any, store: Any) -> dict[bytes, Any]:
    """Return everything a store keeps, in Python's types: the order of a large hash differs from dump to dump."""
    read = {
        b"string": client.get,
        b"hash": client.hgetall,
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"zset": lambda key: client.zrange(key, 0, -1),
    }
    return {key: read[client.type(key)](key) for key in dump(client, store)}


def test_a_claim_that_came_to_nothing_takes_nothing_later(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was removed after it was read, and is paused again, just as it was, when the first sending arrives."""
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    late, read = Late(one), one._read
    monkeypatch.setattr(one, "_read", lambda run: (read(run), other.remove(run))[0])
    assert one.claim("a") is None
    other.save(samples.paused("a"))
    late.arrive()
    assert other.list() == ["a"]


def test_an_update_that_came_to_nothing_replaces_nothing_later(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was deleted after it was read, and is there again, just as it was, when the first sending arrives."""
    one, other = pair(RUNS)
    called(one, "create_run", samples.run("a"))
    late, read = Late(one), one._read
    monkeypatch.setattr(one, "_read", lambda run: (read(run), called(other, "delete_run", run))[0])
    with pytest.raises(NotFound):
        called(one, "update_context", "a", "late")
    called(other, "create_run", samples.run("a"))
    late.arrive()
    assert called(other, "get_run", "a") == samples.run("a")


def test_a_change_is_not_made_again_when_its_receipt_may_be_gone(
    pair: Any, redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that stood still for a minute cannot know what has become of what it sent."""
    one, other = pair(PAUSED)

    def a_minute_later() -> None:
        other.claim("a")
        with direct(redis_server) as client:
            client.delete(*client.keys(f"*{one._prefix}*:receipt:*"))
        since = client_module._seconds()
        monkeypatch.setattr(client_module, "_seconds", lambda: since + 60)

    Meanwhile(one, a_minute_later)
    with pytest.raises(LostConnection, match=r"the answer is lost.* The change may or may not have been made"):
        one.save(samples.paused("a"))
    assert one.list() == []


def test_a_resent_change_is_accepted_while_its_receipt_lasts(
    redis_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_seconds", lambda: 130.0)
    with RedisPausedStore(redis_server.url, "left") as store, direct(redis_server) as client:
        before, deadline, after = client.time(), store._client._deadline("key", 100.0), client.time()
    receipts = [seconds * 1000 + micro // 1000 + 30_000 for seconds, micro in (before, after)]
    assert receipts[0] - 1_000 <= deadline <= receipts[1] - 1_000


def test_a_claim_whose_answer_is_lost_for_good_is_still_its_own(redis_server: Server, pair: Any) -> None:
    """It may complete what it holds and must not free another's claim, although it never got the answer."""
    one, other = pair(PAUSED)
    one.save(samples.paused("a"))
    Meanwhile(one, redis_server.kill)
    try:
        with pytest.raises(LostConnection):
            one.claim("a")
    finally:
        redis_server.restart()
    assert other.list() == []
    one.complete("a")
    assert other.recover_orphaned() == 0

    other.save(samples.paused("a"))
    other.claim("a")
    one.complete("a")
    assert other.recover_orphaned() == 1


def test_a_claim_that_was_never_sent_does_not_keep_a_restarted_worker_from_finishing_up(
    redis_server: Server, pair: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, before = pair(PAUSED)
    one.save(samples.paused("a"))
    read = one._read

    def read_and_lose(run: str) -> Any:
        found = read(run)
        before.claim("a")
        redis_server.kill()
        return found

    monkeypatch.setattr(one, "_read", read_and_lose)
    try:
        with pytest.raises(LostConnection, match=NOTHING_SENT):
            one.claim("a")
    finally:
        redis_server.restart()
    one.complete("a")
    assert one.recover_orphaned() == 0
