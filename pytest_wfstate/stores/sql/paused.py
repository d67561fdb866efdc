"""The paused contract, in a database: a row per run.

The row holds the record in one column while the run is paused, and in another while it is in flight. It holds both if
the run was paused again before its claim was dropped. A claim moves the record in one statement, so that one of them
always exists.
"""

from __future__ import annotations

import builtins
import datetime
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Engine,
    Index,
    Text,
    bindparam,
    null,
    or_,
    select,
    update,
)

from pytest_wfstate.contracts.clock import Clock, now
from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.paused import FencedPausedStore, PausedWorkflow, check_age
from pytest_wfstate.stores.own_claims import MOST_TOKENS, OwnClaims
from pytest_wfstate.stores.sql import rows
from pytest_wfstate.stores.sql.base import SqlStore, Statements, parse
from pytest_wfstate.stores.sql.rows import Row, of
from pytest_wfstate.stores.sql.schema import Json, Key, key

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LONGEST = 10.0**12  # seconds: longer ago than any claim, and its microseconds fit in 64 bits
_ANY_TIME = 2**63 - 1
_OWN_TOKENS = [f"own_token_{number}" for number in range(MOST_TOKENS)]


class _PausedStatements(Statements):
    contract = "paused"

    def _begin(self, insert: Callable[..., Any]) -> None:
        self.runs = self.schema.table(
            "paused",
            Column("run", Key, primary_key=True),
            Column("run_id", Text, nullable=False),
            Column("record", Json),
            Column("inflight", Json),
            Column("token", Text),
            Column("claimed_at", BigInteger),
        )
        runs, row = self.runs.c, rows.matches(self.runs)
        is_paused, is_claimed = runs.record.is_not(None), runs.inflight.is_not(None)
        Index(f"{self.runs.name}_claims", runs.claimed_at, sqlite_where=is_claimed, postgresql_where=is_claimed)
        self.put = self._statement(rows.put(insert(self.runs), "record"))
        self.get = self._statement(rows.get(self.runs, "record"))
        self.list = self._statement(select(runs.run_id).where(is_paused))
        drop = rows.drop(self.runs)
        self.drop = self._statement(drop)
        self.drop_empty = self._statement(drop.where(~is_paused, ~is_claimed))
        claim = {"inflight": runs.record, "token": bindparam("new_token"), "claimed_at": bindparam("now")}
        taken = update(self.runs).where(row, self._dialect.is_still(runs.record)).values(record=null(), **claim)
        self.take = self._statement(taken)
        unclaimed = update(self.runs).where(is_claimed).values(inflight=null(), token=null(), claimed_at=null())
        free = unclaimed.where(row)
        self.free = self._statement(free)
        self.get_token = self._statement(rows.get(self.runs, "token").where(is_claimed))
        has_token = runs.token.in_([bindparam(name, type_=Text()) for name in _OWN_TOKENS])
        self.free_own = self._statement(free.where(has_token))
        renewed = update(self.runs).where(row, is_claimed, has_token).values(claimed_at=bindparam("now"))
        self.renew = self._statement(renewed)
        orphans = unclaimed.where(or_(runs.claimed_at.is_(None), runs.claimed_at <= bindparam("latest")))
        self.rearm = self._statement(orphans.where(~is_paused).values(record=runs.inflight))
        self.forget = self._statement(orphans.where(is_paused))


class SqlPausedStore(SqlStore[_PausedStatements], FencedPausedStore):
    """Keeps runs in the table `wfstate_paused`."""

    statements = _PausedStatements

    def __init__(
        self, where: str | URL | Engine, *, prefix: str = "wfstate", clock: Clock = now, mode: int | None = None
    ) -> None:
        super().__init__(where, prefix=prefix, clock=clock, mode=mode)
        self._claims = OwnClaims()

    def save(self, paused: PausedWorkflow) -> None:
        paused = PausedWorkflow.checked(paused)
        check_id("run id", paused.run_id)
        row = {**_row(paused), "run_id": paused.run_id, "record": paused.to_json()}
        self._database.change(self._sql.put, row)

    def load(self, run_id: str) -> PausedWorkflow | None:
        row = {"run": key(check_id("run id", run_id))}
        text = self._database.ask(self._sql.get, of(row)).value
        return None if text is None else parse(PausedWorkflow, text, self._sql.runs, row, _row)

    def claim(self, run_id: str) -> PausedWorkflow | None:
        row = {"run": key(check_id("run id", run_id))}
        while (text := self._database.ask(self._sql.get, of(row)).value) is not None:
            paused = parse(PausedWorkflow, text, self._sql.runs, row, _row)
            if self._take(run_id, {**of(row), "seen": text}):
                return paused
        return None

    def _take(self, run_id: str, seen: Row) -> bool:
        """Claim a run if its record is still the one seen."""
        token, before = self._claims.new_token(), self._claims.tokens(run_id)
        claim = {**seen, "new_token": token, "now": _microseconds(self._clock())}
        try:
            is_taken = self._database.change(self._sql.take, claim).changed > 0
            if is_taken:
                self._claims.made(run_id, token, instead_of=before)
        except BaseException as error:
            if not self._database.changed_nothing(error):
                self._claims.made(run_id, token)  # the run may be ours, and we must not free another's claim
            raise
        return is_taken

    def token(self, run_id: str) -> str:
        row = of({"run": key(check_id("run id", run_id))})
        return self._claims.token(run_id, lambda: self._database.ask(self._sql.get_token, row).value)

    def recover_orphaned(self, older_than: float | None = None) -> int:
        latest = {"latest": _latest(self._clock(), check_age(older_than))}
        # In this order: the second statement sees a run that is paused again in between. One recovery at a time:
        # PostgreSQL locks rows in any order, so each of two could wait for a row that the other has locked.
        changes = [(self._sql.rearm, latest), (self._sql.forget, latest)]
        rearmed, _ = self._database.write(changes, lock=f"{self._sql.runs.name} recover")
        return rearmed.changed

    def complete(self, run_id: str, token: str | None = None) -> bool | None:
        row = of({"run": key(check_id("run id", run_id))})
        needed = self._claims.needed(run_id) if token is None else (check_id("token", token),)
        free = (self._sql.free, row) if needed is None else (self._sql.free_own, {**row, **_own_tokens(needed)})
        freed, _ = self._database.write([free, (self._sql.drop_empty, row)])
        self._claims.finished(run_id, needed or ())
        return None if token is None else freed.changed > 0

    def renew(self, run_id: str, token: str) -> bool:
        row = of({"run": key(check_id("run id", run_id))})
        claim = {**row, **_own_tokens((check_id("token", token),)), "now": _microseconds(self._clock())}
        return self._database.change(self._sql.renew, claim).changed > 0

    def remove(self, run_id: str) -> None:
        row = {"run": key(check_id("run id", run_id))}
        own = self._claims.tokens(run_id)
        self._database.change(self._sql.drop, of(row))
        self._claims.finished(run_id, own)

    def list(self) -> builtins.list[str]:
        return sorted(run_id for (run_id,) in self._database.ask(self._sql.list, {}).rows)


def _row(paused: PausedWorkflow) -> dict[str, str]:
    return {"run": key(paused.run_id)}


def _own_tokens(tokens: Sequence[str]) -> dict[str, str | None]:
    """Return the parameters for a comparison with any of these tokens. Null equals none."""
    return dict(itertools.zip_longest(_OWN_TOKENS, tokens))


def _microseconds(moment: datetime.datetime) -> int:
    return (moment - _EPOCH) // datetime.timedelta(microseconds=1)


def _latest(moment: datetime.datetime, age: float) -> int:
    """Return the latest microsecond at which a claim that is at least `age` seconds old was made."""
    if age < 0:
        return _ANY_TIME
    least = int(min(age, _LONGEST) * 10**6) - 1
    while least / 10**6 < min(age, _LONGEST):  # in seconds, inexact as they are, like the other stores
        least += 1
    return _microseconds(moment) - least
