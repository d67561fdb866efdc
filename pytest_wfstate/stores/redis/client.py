"""The client of a store: it runs scripts on the server, and resends a call whose connection was lost."""

from __future__ import annotations

import contextlib
import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from pytest_wfstate.errors import CorruptRecord, LostConnection, WfstateError
from pytest_wfstate.stores.redis.connecting import check_client, lost_errors, own_client, place_of, redis_package
from pytest_wfstate.stores.redis.lua_script import NOW, REMEMBERED, TOO_LATE, ChangeScript, Script
from pytest_wfstate.stores.redis.settings import warn_once

T = TypeVar("T")
Argument = str | bytes | int

_SLACK = 1.0
"""Seconds by which the clocks of client and server may drift apart while a receipt is kept."""

_REPLICAS_WAIT = 4000
"""Milliseconds to wait for replicas: less than a client waits for an answer."""

# It must not stop while the machine sleeps, and frozen clocks in tests leave it alone.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RedisClient:
    """The store's own connection pool, made from a URL, or a client that the user passed in.

    It is safe to use in threads and in forked processes: redis-py gives each its own connections. A change is
    acknowledged once `wait_replicas` replicas have it.
    """

    def __init__(self, url_or_client: Any, *, wait_replicas: int = 0) -> None:
        self._package = package = redis_package()
        self._is_own = isinstance(url_or_client, str)
        self._url = url_or_client if self._is_own else ""
        self._redis: Any = own_client(package, url_or_client) if self._is_own else url_or_client
        check_client(package, self._redis)
        self._is_cluster = isinstance(self._redis, package.RedisCluster)
        self._lost = lost_errors(package, self._redis)
        self._wait_replicas = check_replicas(wait_replicas)
        self._closed = 0
        """How often it was closed."""

    def query(self, script: Script, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes nothing, and return its result, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds a value of the wrong type.
        """
        return self._retry_once(lambda: self._run(script, keys, args), keys[0], changes=False)

    def change(self, change: ChangeScript, keys: Sequence[str], args: Sequence[Argument] = ()) -> Any:
        """Run a script that changes something exactly once, and return its result, text as bytes.

        Raises:
            LostConnection: the server cannot be reached, or did not answer, or too few replicas confirmed the change.
            CorruptRecord: a key holds a value of the wrong type.
        """
        begin, attempts = _seconds(), itertools.count()

        def call() -> Any:
            deadline = self._deadline(keys[0], begin) if next(attempts) else ""
            return self._run_replicated(change, keys, [*args, deadline])

        return self._retry_once(call, keys[1], changes=True)

    def read_at_once(self, *commands: Sequence[str]) -> list[Any]:
        """Run commands that only read, all at one moment, and return their results, text as bytes.

        The second word of each is a key, and the same server has all of these keys. A script could do it too, but takes
        the server many times as long if there is much to read.

        Raises:
            LostConnection: the server cannot be reached, or did not answer.
            CorruptRecord: a key holds a value of the wrong type.
        """
        return self._retry_once(lambda: self._read_once(*commands), commands[0][1], changes=False)

    def get(self, *command: str) -> Any:
        """Run a command that only reads, or that may be repeated; its second word is the key."""
        return self._retry_once(lambda: self._send(*command), command[1], changes=False)

    def sent_nothing(self, error: BaseException) -> bool:
        """Whether a call that raised `error` is known not to have been sent."""
        return self._is_unsent(error.__cause__ or error)

    def close(self) -> None:
        """Close the connections, unless the client is the user's.

        One that another thread is using is closed when its call has returned: its change may have been made.
        """
        self._closed += 1
        self._close_idle()

    def _close_idle(self) -> None:
        if self._is_own:
            self._redis.connection_pool.disconnect(inuse_connections=False)

    def _run_replicated(self, change: ChangeScript, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        if not self._wait_replicas:
            return self._run(change, keys, args)
        with self._one_connection(keys[0]) as client:  # WAIT is about the changes of its own connection
            result = self._run(change, keys, args, client)
            confirmed = self._send("WAIT", self._wait_replicas, _REPLICAS_WAIT, client=client)
        if confirmed < self._wait_replicas:
            done = "found nothing to change" if result is None else "has made the change"
            raise LostConnection(
                f"the Redis server{self._place()} {done} on key {keys[1]!r}, but after {_REPLICAS_WAIT / 1000:g} s "
                f"only {confirmed} of {self._wait_replicas} replicas are up to date. A failover could undo what it "
                "has. Check its replicas, and what is there, before you retry."
            )
        return result

    def _read_once(self, *commands: Sequence[str]) -> list[Any]:
        # Not redis-py's own transaction: it decodes results if the user's client does.
        message = [["MULTI"], *([word.encode() for word in command] for command in commands), ["EXEC"]]
        with self._one_connection(commands[0][1]) as client:
            connection = client.connection
            connection.send_packed_command(connection.pack_commands(message))
            *_, results = [connection.read_response(disable_decoding=True) for _ in message]
        for result in results:
            if isinstance(result, Exception):
                raise result
        return list(results)

    @contextlib.contextmanager
    def _one_connection(self, key: str) -> Iterator[Any]:
        """Yield a client with a single connection, to the server that has the key."""
        client = self._redis
        if self._is_cluster:
            client = client.get_redis_connection(client.get_node_from_key(key))
        with client.client() as one:
            try:
                yield one
            except BaseException:
                one.connection.disconnect()  # a reply that was not read would be taken for that to the next call
                raise

    def _run(self, script: Script, keys: Sequence[str], args: Sequence[Argument], client: Any = None) -> Any:
        rest = [len(keys), *keys, *args]
        try:
            return self._send("EVALSHA", script.sha, *rest, client=client)
        except self._package.exceptions.NoScriptError:  # a server forgets scripts when it starts
            return self._send("EVAL", script.text, *rest, client=client)

    def _send(self, command: str, *args: Argument, client: Any = None) -> Any:
        # Bytes in both directions, whatever the user's client encodes and decodes: a record that is not text is then
        # reported as corrupt, not as a decoding error.
        encoded = [arg.encode() if isinstance(arg, str) else arg for arg in args]
        return (client or self._redis).execute_command(command, *encoded, NEVER_DECODE=True)

    def _abandon(self) -> None:
        """Let no other call have the connection of one that a signal handler interrupted, wherever that was.

        Its reply may not have been read, and its pool may count it as in use forever. So our own client is replaced, as
        calls of other threads do not mind. It has closed the connection before another thread could get it; the user's
        may just have lent it to one.
        """
        client = self._redis
        if self._is_own:
            self._redis = own_client(self._package, self._url)
        if getattr(client, "connection", None) is not None:
            client.connection.disconnect()
        nodes = client.get_nodes() if hasattr(client, "get_nodes") else [client]
        for node in nodes:
            pool = getattr(getattr(node, "redis_connection", node), "connection_pool", None)
            if pool is not None:
                pool.disconnect(inuse_connections=False)

    def _deadline(self, key: str, begin: float) -> int:
        """Return the server time until which it still has the receipt of a call sent since `begin`."""
        now: int = self._run(NOW, [key], [])
        return now + int(1000 * (REMEMBERED - _SLACK - (_seconds() - begin)))

    def _retry_once(self, call: Callable[[], T], key: str, *, changes: bool) -> T:
        """Make a call, and retry it once if the connection was lost."""
        closed = self._closed
        try:
            self._warn_once()
            return self._attempts(call, key, changes=changes)
        except (self._package.RedisError, WfstateError):
            raise
        except BaseException:
            self._abandon()
            raise
        finally:
            if self._closed != closed:
                self._close_idle()

    def _attempts(self, call: Callable[[], T], key: str, *, changes: bool) -> T:
        lost: list[Exception] = []
        while len(lost) < 2:
            try:
                if lost and self._is_cluster:
                    self._redis.nodes_manager.initialize()  # which a call on a single connection does not
                return call()
            except self._lost as error:
                if isinstance(error, self._package.AuthenticationError) and not lost:
                    raise
                lost.append(error)
            except self._package.RedisError as error:
                if "WRONGTYPE" in str(error):
                    raise CorruptRecord(f"Redis key {key!r}", f"the server reports {error}") from error
                if TOO_LATE in str(error):
                    break
                if not lost:
                    raise
                lost.append(error)  # the server refuses the retry, by BUSY for instance; the first may have been made
        # Of two errors, report the one whose call may have been sent.
        cause = next((error for error in lost if not self._is_unsent(error)), lost[-1])
        raise self._lost_in(key, cause, lost[-1], changes=changes) from cause

    def _is_unsent(self, error: BaseException) -> bool:
        """Whether a call failed because it got no connection, from the pool or to the server.

        A cluster client may have sent it to another node before.
        """
        frames = traceback.walk_tb(error.__traceback__)
        not_connected = any(frame.f_code.co_name == "get_connection" for frame, _ in frames)
        return not_connected and not self._is_cluster

    def _lost_in(self, key: str, error: Exception, last: Exception, *, changes: bool) -> LostConnection:
        problem = f"the connection to the Redis server{self._place()} was lost, and a retry failed"
        advice = "The call only reads. Retry when the server can be reached."
        if self._is_unsent(error):
            problem = f"cannot connect to the Redis server{self._place()}"
            advice = "Nothing was changed. Retry when the server can be reached and the client has a free connection."
        elif changes:
            advice = "The change may or may not have been made. Check whether it is there before you retry."
        reason = str(error).rstrip(".")
        if isinstance(last, self._package.ResponseError):
            reason += f", and the server refused the retry: {last}".rstrip(".")
        return LostConnection(f"{problem}: {reason}. The call was on key {key!r}. {advice}")

    def _warn_once(self) -> None:
        warn_once(self._package, self._redis, self._place())

    def _place(self) -> str:
        return place_of(self._redis)


def check_replicas(number: Any) -> int:
    """Return `number` if a change can wait for that many replicas.

    Raises:
        ValueError: it is not a whole number from 0.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"wait_replicas is {number!r}. It must be a whole number of replicas, 0 for none.")
    return number


def _seconds() -> float:
    return time.clock_gettime(_CLOCK)
