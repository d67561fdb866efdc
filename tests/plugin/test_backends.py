"""The store fixtures: their backends, who chooses them, and what a test gets."""

from __future__ import annotations

import psycopg
import pytest
import redis

from pytest_wfstate import Server
from pytest_wfstate.stores import file, memory, sql
from tests.plugin.conftest import Items, Run

FIXTURES = {
    "effect_store": "EffectStore",
    "paused_store": "PausedStore",
    "resume_store": "ResumeStore",
    "snapshot_store": "SnapshotStore",
    "run_store": "RunStore",
}
ONE_TEST = "def test_it(paused_store): pass"


@pytest.fixture
def one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ONE_TEST)


@pytest.mark.parametrize(("fixture", "protocol"), list(FIXTURES.items()))
def test_a_store_is_of_its_contract_and_backend(
    pytester: pytest.Pytester, run: Run, items: Items, fixture: str, protocol: str
) -> None:
    pytester.makepyfile(
        f"""
        import pytest_wfstate

        PREFIXES = {{"test_it[memory]": "Memory", "test_it[file]": "File", "test_it[sqlite]": "Sql"}}

        def test_it({fixture}, request):
            assert type({fixture}) is getattr(pytest_wfstate, PREFIXES[request.node.name] + "{protocol}")
            assert isinstance({fixture}, pytest_wfstate.{protocol})
        """
    )
    assert items() == ["test_it[memory]", "test_it[file]"]
    run("--wfstate-backends=memory,file,sqlite").assert_outcomes(passed=3)


@pytest.mark.usefixtures("one_test")
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("file", ["file"]),
        ("file,memory", ["file", "memory"]),
        (" file , memory ", ["file", "memory"]),
        ("memory,memory", ["memory"]),
        ("file,,", ["file"]),
    ],
)
def test_the_option_chooses_the_backends_in_its_order(items: Items, option: str, expected: list[str]) -> None:
    assert items(f"--wfstate-backends={option}") == [f"test_it[{name}]" for name in expected]


@pytest.mark.usefixtures("one_test")
def test_the_ini_setting_chooses_the_backends_and_the_option_overrides_it(
    pytester: pytest.Pytester, items: Items
) -> None:
    pytester.makeini("[pytest]\nwfstate_backends = memory")
    assert items() == ["test_it[memory]"]
    assert items("--wfstate-backends=file") == ["test_it[file]"]


KNOWN = "Choose from: memory, file, sqlite, postgres, redis."


@pytest.mark.usefixtures("one_test")
@pytest.mark.parametrize("source", ["--wfstate-backends", "the ini setting wfstate_backends"])
@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        ("memory,redish", "names the unknown backend 'redish'. It was 'memory,redish'."),
        ("memory, Redish", "names the unknown backend 'Redish'. It was 'memory, Redish'."),
        (",", "names no backend. It was ','."),
        ("", "names no backend. It was ''."),
    ],
)
def test_a_wrong_choice_is_a_usage_error_that_names_its_source(
    pytester: pytest.Pytester, run: Run, source: str, names: str, complaint: str
) -> None:
    if source.startswith("the ini"):
        pytester.makeini(f"[pytest]\nwfstate_backends = {names}")
    result = run(*([] if source.startswith("the ini") else [f"--wfstate-backends={names}"]))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {source} {complaint} {KNOWN}" in result.errlines


def test_indirect_parametrize_picks_the_backends_of_one_test(pytester: pytest.Pytester, items: Items, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("paused_store", ["file"], indirect=True)
        def test_picked(paused_store):
            assert type(paused_store).__name__ == "FilePausedStore"

        def test_all(paused_store): pass
        """
    )
    assert items() == ["test_picked[file]", "test_all[memory]", "test_all[file]"]
    run("--wfstate-backends=memory").assert_outcomes(passed=2)


def test_an_unknown_backend_in_parametrize_is_one_clear_line(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("paused_store", ["redish"], indirect=True)
        def test_picked(paused_store): pass
        """
    )
    result = run()
    result.assert_outcomes(errors=1)
    assert f"paused_store was parametrized with the unknown backend 'redish'. {KNOWN}" in result.outlines
    assert "labs/stores.py" not in result.stdout.str()


def test_a_users_fixture_replaces_ours(pytester: pytest.Pytester, items: Items, run: Run) -> None:
    pytester.makeconftest("import pytest\n@pytest.fixture\ndef paused_store(): return 'mine'")
    pytester.makepyfile("def test_it(paused_store): assert paused_store == 'mine'")
    assert items() == ["test_it"]
    run().assert_outcomes(passed=1)


def test_a_users_fixture_can_build_on_ours(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest(
        """
        import pytest
        from pytest_wfstate import samples

        @pytest.fixture
        def paused_store(paused_store):
            paused_store.save(samples.paused("run-1"))
            return paused_store
        """
    )
    pytester.makepyfile("def test_it(paused_store): assert paused_store.list() == ['run-1']")
    run().assert_outcomes(passed=2)


@pytest.mark.parametrize("overridden", ["paused_store", "frozen_clock", "fake_disk"])
def test_a_users_fixture_leaves_the_others_alone(pytester: pytest.Pytester, run: Run, overridden: str) -> None:
    pytester.makeconftest(f"import pytest\n@pytest.fixture\ndef {overridden}(): raise RuntimeError")
    pytester.makepyfile(
        test_each="\n".join(
            f"def test_{name}({name}): pass" for name in [*FIXTURES, "frozen_clock", "fake_disk"] if name != overridden
        )
    )
    run("--wfstate-backends=file").assert_outcomes(passed=6)


def test_two_store_fixtures_in_one_test_multiply(pytester: pytest.Pytester, items: Items) -> None:
    pytester.makepyfile("def test_it(paused_store, resume_store): pass")
    both = ("file", "memory")
    assert sorted(items()) == [f"test_it[{first}-{second}]" for first in both for second in both]


def test_each_test_gets_an_empty_store(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_wfstate import samples

        @pytest.mark.parametrize("time", [1, 2])
        def test_it(paused_store, time):
            assert paused_store.list() == []
            paused_store.save(samples.paused("run-1"))
        """
    )
    run().assert_outcomes(passed=4)


def test_two_stores_of_one_test_have_a_folder_or_database_each(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        def test_it(paused_store, resume_store, tmp_path):
            stores = (paused_store, resume_store)
            places = {str(getattr(store, "directory", repr(store).partition("(")[2])) for store in stores}
            assert len(places) == 2
            assert not any(str(tmp_path) in place for place in places)
        """
    )
    run("--wfstate-backends=file,sqlite").assert_outcomes(passed=4)


@pytest.mark.parametrize("outcome", ["passed", "failed"])
def test_every_store_is_closed_after_its_test(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    closed = []
    kept = tuple(FIXTURES.values())
    names = [(module, name) for module in (memory, file, sql) for name in module.__all__ if name.endswith(kept)]
    stores = [getattr(module, name) for module, name in names]
    for store in stores:
        monkeypatch.setattr(store, "close", lambda self: closed.append(type(self)))
    body = "pass" if outcome == "passed" else "assert False"
    pytester.makepyfile(test_each="\n".join(f"def test_{name}({name}): {body}" for name in FIXTURES))
    run("--wfstate-backends=memory,file,sqlite").assert_outcomes(**{outcome: 15})
    assert sorted(closed, key=str) == sorted(stores, key=str)


def test_nothing_is_left_on_given_servers(
    pytester: pytest.Pytester, run: Run, redis_server: Server, postgres_server: Server
) -> None:
    def kept() -> set[bytes | str]:
        with redis.Redis.from_url(redis_server.url) as client, psycopg.connect(postgres_server.url) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables").fetchall()
            return {*client.keys(), *(name for (name,) in tables)}

    before = kept()
    pytester.makepyfile(
        """
        from pytest_wfstate import samples

        def test_it(paused_store):
            assert paused_store.list() == []
            paused_store.save(samples.paused("run-1"))

        def test_it_and_fail(paused_store):
            paused_store.save(samples.paused("run-1"))
            assert False
        """
    )
    urls = [f"--wfstate-redis-url={redis_server.url}", f"--wfstate-postgres-url={postgres_server.url}"]
    run("--wfstate-backends=postgres,redis", *urls).assert_outcomes(passed=2, failed=2)
    assert kept() - before == set()


def test_the_help_names_the_known_backends(run: Run) -> None:
    result = run("--help")
    result.stdout.fnmatch_lines(["*--wfstate-backends=NAMES*", "*wfstate_backends (string):*"])
    assert "memory, file, sqlite, postgres, redis" in " ".join(result.stdout.str().split())
