"""Poolers: stores behind one that shares sessions between clients, such as pgbouncer in transaction mode."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url, text

from pytest_wfstate import (
    Server,
    SqlEffectStore,
    SqlPausedStore,
    SqlResumeStore,
    SqlRunStore,
    SqlSnapshotStore,
    UnusableDatabase,
    as_sync,
    samples,
)
from pytest_wfstate.stores.sql.statements import Statement
from tests.unit.stores.sql.engines import POINT
from tests.unit.stores.sql.places import Place, new_prefix
from tests.unit.stores.sql.pooler import Pooler

TIMES = 9  # psycopg's own default is to prepare a statement on its sixth execution
_MOST_LOOKS = 3000


def use_all(url: str) -> None:
    """Have two clients make every kind of call in turn, often enough for drivers to name their statements."""
    prefix = new_prefix()
    stores = [Client(url, prefix, name) for name in ("a", "b")]
    for n in range(TIMES):
        for store in stores:
            store.work(n)
    for store in stores:
        store.check()


class Client:
    """One client: a store of each contract, and a run of its own."""

    def __init__(self, url: str, prefix: str, run: str) -> None:
        self.run = run
        self.effects: Any = as_sync(SqlEffectStore(url, prefix=prefix))
        self.paused = SqlPausedStore(url, prefix=prefix)
        self.resume: Any = SqlResumeStore(url, prefix=prefix)
        self.runs: Any = as_sync(SqlRunStore(url, prefix=prefix))
        self.snapshots: Any = as_sync(SqlSnapshotStore(url, prefix=prefix))

    def work(self, n: int) -> None:
        self.effects.mark_step_complete(self.run, f"use-{n}", samples.effect(f"use-{n}"))
        self.paused.save(samples.paused(self.run))
        assert self.paused.claim(self.run) == samples.paused(self.run)
        self.paused.complete(self.run)
        assert self.paused.recover_orphaned() == 0
        self.resume.save(samples.resume_point(self.run, step=n))
        assert self.resume.load(self.run) == samples.resume_point(self.run, step=n)
        self.resume.delete(f"{self.run}-other")
        self.runs.create_run(samples.run(self.run))
        self.runs.update_context(self.run, {"n": n})
        self.runs.upsert_step(self.run, samples.step(f"step-{n}"))
        self.snapshots.save(samples.snapshot(self.run, n))

    def check(self) -> None:
        assert self.effects.load_checkpoint(self.run).step_index == TIMES
        assert self.paused.list() == []
        assert self.resume.load(self.run).step == TIMES - 1
        assert self.runs.get_run(self.run).context == {"n": TIMES - 1}
        assert [step.step_id for step in self.runs.list_steps(self.run)] == [f"step-{n}" for n in range(TIMES)]
        assert [meta.super_step for meta in self.snapshots.list("wf", self.run)] == list(range(TIMES))
        for store in (self.effects, self.paused, self.resume, self.runs, self.snapshots):
            store.close()


def test_a_load_never_executes_the_statement_of_another_client(postgres: Server) -> None:
    prefix = new_prefix()
    with Pooler(postgres.url, sessions=2) as pooler:
        deleter, loader = (SqlResumeStore(pooler.url, prefix=prefix) for _ in range(2))
        loader.save(POINT)
        for _ in range(TIMES):
            pooler.session = 0
            deleter.delete("other")
            pooler.session = 1
            assert loader.load("a") == POINT
        pooler.session = 0
        assert [loader.load("a") for _ in range(2)] == [POINT, POINT]
        deleter.close()
        loader.close()


def test_a_wait_is_bounded_in_every_session_whatever_others_have_set_in_one(postgres: Server) -> None:
    with Pooler(postgres.url, sessions=2) as pooler:
        with psycopg.connect(pooler.url, autocommit=True) as other:
            other.execute("SET lock_timeout = '3s'")
        with SqlResumeStore(pooler.url, prefix=new_prefix()) as store:
            asked = Statement(text("SHOW lock_timeout"), store._database.dialect.writer)
            for pooler.session in (0, 1):
                assert store._database.write([(asked, {})])[0].value == "3s"


def test_two_clients_share_one_session(postgres: Server) -> None:
    with Pooler(postgres.url, sessions=1) as pooler:
        use_all(pooler.url)


def test_the_stand_in_confuses_clients_that_name_their_statements(postgres: Server) -> None:
    """Otherwise the tests above would show nothing."""
    with (
        Pooler(postgres.url, sessions=1) as pooler,
        psycopg.connect(pooler.url, autocommit=True, prepare_threshold=0) as one,
        psycopg.connect(pooler.url, autocommit=True, prepare_threshold=0) as other,
    ):
        assert one.execute("SELECT %s", ["one"]).fetchone() == ("one",)
        with pytest.raises(psycopg.errors.DuplicatePreparedStatement):
            other.execute("SELECT upper(%s)", ["other"])


@pytest.fixture
def pgbouncer(postgres: Server, tmp_path: Path) -> Iterator[str]:
    """The URL of a real pgbouncer in transaction mode, with a single session."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed: the stand-in shows the same")
    url = make_url(postgres.url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    account: dict[str, Any] = {}
    config = tmp_path / "pgbouncer.ini"
    if os.geteuid() == 0:  # it refuses to run as root, and others cannot read our folder
        nobody = pwd.getpwnam("nobody")
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        config = Path(tempfile.gettempdir()) / f"wfstate-pgbouncer-{port}.ini"
    config.touch(0o600)
    config.write_text(
        f"[databases]\n{url.database} = host={url.host} port={url.port} user={url.username} password={url.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 1\n"
    )
    if account:
        os.chown(config, account["user"], account["group"])
    try:
        with subprocess.Popen([program, "-q", str(config)], **account) as process:
            try:
                assert any(_answers(port) or process.poll() is not None for _ in range(_MOST_LOOKS))
                assert process.poll() is None
                yield url.set(port=port, password=None).render_as_string(hide_password=False)
            finally:
                process.kill()
    finally:
        config.unlink()


def _answers(port: int) -> bool:
    """Whether something listens at this port. If not, wait a moment."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        time.sleep(0.01)
        return False
    return True


def test_two_clients_share_one_session_of_pgbouncer(pgbouncer: str) -> None:
    use_all(pgbouncer)


# What a URL can say to the driver


@pytest.mark.parametrize(
    ("query", "expected"),
    [("", None), ("?prepare_threshold=none", None), ("?prepare_threshold=3", 3), ("?prepare_threshold=0", 0)],
)
def test_statements_are_not_prepared_unless_the_url_says_so(
    on_postgres: Place, query: str, expected: int | None
) -> None:
    with Place(f"{on_postgres.url}{query}", on_postgres.prefix).open(SqlResumeStore) as store:
        for n in range(TIMES):
            store.save(samples.resume_point("a", step=n))
        assert store.load("a").step == TIMES - 1
        assert store._database._connections.idle[0].driver.prepare_threshold == expected


@pytest.mark.parametrize("value", ["often", "-1", "1.5", "1&prepare_threshold=2"])
def test_an_invalid_prepare_threshold_is_refused(on_postgres: Place, value: str) -> None:
    with pytest.raises(UnusableDatabase, match=r"its prepare_threshold is .*, neither a whole number nor none"):
        SqlResumeStore(f"{on_postgres.url}?prepare_threshold={value}")


def test_a_url_may_set_time_limits(on_postgres: Place) -> None:
    query = "connect_timeout=7&options=-c%20statement_timeout%3D9s%20-c%20lock_timeout%3D3s"
    with Place(f"{on_postgres.url}?{query}", on_postgres.prefix).open(SqlResumeStore) as store:
        store.load("a")
        driver = store._database._connections.idle[0].driver
        assert driver.info.get_parameters()["connect_timeout"] == "7"
        asked = [driver.execute(f"SHOW {name}").fetchone()[0] for name in ("statement_timeout", "lock_timeout")]
        assert asked == ["9s", "3s"]
