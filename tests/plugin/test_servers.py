"""The fixtures `postgres_server` and `redis_server`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_wfstate.faults.servers import places
from tests.plugin.conftest import WITH_XDIST, Run

NAMES = ["postgres", "redis"]
each = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(places, "_DEBIAN", tmp_path)
    monkeypatch.setattr(places, "_wheel", lambda _: tmp_path)


@pytest.fixture(autouse=True)
def no_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(f"WFSTATE_{name.upper()}_URL", raising=False)


@each
def test_a_server_is_shared_by_the_session_and_can_be_killed(pytester: pytest.Pytester, run: Run, name: str) -> None:
    pytester.makepyfile(
        f"""
        import socket
        from urllib.parse import urlsplit
        urls = []

        def is_listening(url):
            with socket.socket() as client:
                return client.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) == 0

        def test_one({name}_server):
            urls.append({name}_server.url)
            {name}_server.kill()
            assert not is_listening(urls[0])
            {name}_server.restart()

        def test_other({name}_server):
            assert urls == [{name}_server.url]
            assert is_listening(urls[0])
        """
    )
    run().assert_outcomes(passed=2)


@each
@pytest.mark.parametrize("way", ["option", "variable", "both"])
def test_a_given_url_is_used_and_the_option_overrides_the_variable(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, way: str
) -> None:
    options = [] if way == "variable" else [f"--wfstate-{name}-url=made-up://option"]
    if way != "option":
        monkeypatch.setenv(f"WFSTATE_{name.upper()}_URL", "made-up://variable")
    pytester.makepyfile(
        f"""
        def test_it({name}_server):
            assert {name}_server.url == "made-up://{"variable" if way == "variable" else "option"}"
            assert not hasattr({name}_server, "kill")
        """
    )
    run(*options).assert_outcomes(passed=1)


@each
@pytest.mark.usefixtures("no_programs")
def test_a_missing_server_skips_with_what_to_do(pytester: pytest.Pytester, run: Run, name: str) -> None:
    pytester.makepyfile(f"def test_it({name}_server): pass")
    result = run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*there is no * server. Looked for * Run `pip install *pytest-wfstate?servers?*"])


@pytest.mark.parametrize("way", ["option", "ini"])
@pytest.mark.usefixtures("no_programs")
def test_a_missing_server_that_is_required_fails(pytester: pytest.Pytester, run: Run, way: str) -> None:
    options = ["--wfstate-servers=required"] if way == "option" else []
    if way == "ini":
        pytester.makeini("[pytest]\nwfstate_servers = required")
    pytester.makepyfile("def test_it(redis_server): pass")
    result = run(*options)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["there is no Redis server. * This test fails instead of being skipped: wfstate_servers=required."]
    )
    assert "labs/servers.py" not in result.stdout.str()


def test_an_unknown_value_for_servers_is_one_clear_line(run: Run) -> None:
    result = run("--wfstate-servers=perhaps")
    result.stderr.fnmatch_lines(["*--wfstate-servers is 'perhaps', which is unknown. Choose from: optional, required."])


def test_a_test_can_use_a_volatile_redis(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        import redis

        @pytest.mark.parametrize("redis_server", ["volatile"], indirect=True)
        def test_it_forgets(redis_server):
            with redis.Redis.from_url(redis_server.url) as client:
                client.set("a", 1)
                redis_server.kill()
                redis_server.restart()
                assert client.get("a") is None
        """
    )
    # A given server may keep its data, so it is not used here.
    run("--wfstate-redis-url=made-up").assert_outcomes(passed=1)


def test_an_unknown_kind_of_server_is_one_clear_line(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("redis_server", ["eternal"], indirect=True)
        def test_it(redis_server): pass
        """
    )
    result = run()
    result.assert_outcomes(errors=1)
    expected = (
        "redis_server has a wrong parameter. There is no kind 'eternal' of Redis. Choose from: durable, volatile."
    )
    assert expected in result.outlines
    assert "labs/servers.py" not in result.stdout.str()


@each
def test_a_server_that_fails_to_start_is_not_reported_as_a_wrong_parameter(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def find() -> places.ProgramFolder:
        raise ValueError("a defect of ours")

    monkeypatch.setattr(f"pytest_wfstate.faults.servers.{name}.find_{name}", find)
    pytester.makepyfile(f"def test_it({name}_server): pass")
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ValueError: a defect of ours"])
    assert "wrong parameter. " not in result.stdout.str()


def test_every_xdist_worker_has_its_own_server(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_it(redis_server, worker_id):
            redis_server.kill()
            redis_server.restart()
            with open(worker_id, "w") as file:
                file.write(redis_server.url)
        """
    )
    result = pytester.runpytest_subprocess(*WITH_XDIST, "--dist=each", "--tx=2*popen")
    result.assert_outcomes(passed=2)
    assert len({(pytester.path / worker).read_text() for worker in ("gw0", "gw1")}) == 2
