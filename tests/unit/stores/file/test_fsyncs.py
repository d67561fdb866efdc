"""What each call waits for: as few fsyncs as are enough, counted exactly, in the order that matters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_wfstate import FilePausedStore, samples
from tests.unit.stores.file.conftest import Calls
from tests.unit.stores.file.kinds import EFFECTS, JOURNALS, KINDS, PAUSED, RESUME, RUNS, SNAPSHOTS, Kind

FOLDER = "fsync home"
Act = Callable[[Any], object]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def steady(kind: Kind, home: Path, calls: Calls, *before: Act) -> Any:
    """Open a store that has done its first call, and `before`."""
    store = kind.open(home, "power")
    kind.change(store, "other", 0)
    for act in before:
        act(store)
    calls.start()
    return store


def save(store: FilePausedStore) -> None:
    store.save(samples.paused("a"))


def claim(store: FilePausedStore) -> None:
    store.claim("a")


@pytest.mark.parametrize(
    ("before", "act", "fsyncs"),
    [
        ([], save, ["fsync a.json.tmp", FOLDER]),
        ([save], save, ["fsync a.json.tmp", FOLDER]),
        ([save], claim, ["fsync a.lease", FOLDER]),
        ([save, claim, save], claim, ["fsync a.lease.next", FOLDER, FOLDER, FOLDER]),
        ([save, claim], lambda store: store.complete("a"), [FOLDER]),
        ([save, claim], lambda store: store.complete("a", token=store.token("a")), [FOLDER]),
        ([save, claim], lambda store: store.complete("a", token="another"), [FOLDER]),
        ([save, claim], lambda store: store.renew("a", token=store.token("a")), ["fsync a.lease.tmp", FOLDER]),
        ([save, claim], lambda store: store.renew("a", token="another"), [FOLDER]),
        ([save, claim], lambda store: store.token("a"), []),
        ([save], lambda store: store.remove("a"), [FOLDER, FOLDER]),
        ([save, claim], lambda store: store.remove("a"), [FOLDER]),
        ([save, claim, save], lambda store: store.remove("a"), [FOLDER, FOLDER]),
        ([save, claim], lambda store: store.recover_orphaned(), [FOLDER]),
        ([save, claim, save], lambda store: store.recover_orphaned(), [FOLDER, FOLDER]),
        ([save], lambda store: store.load("a"), []),
        ([save], lambda store: store.list(), []),
    ],
    ids=[
        "save",
        "save over",
        "claim",
        "claim paused again",
        "complete",
        "complete with a token",
        "complete with another token",
        "renew",
        "renew with another token",
        "token",
        "remove paused",
        "remove claimed",
        "remove both",
        "recover",
        "recover paused",
        "load",
        "list",
    ],
)
def test_paused_calls_sync_no_more_than_they_must(
    home: Path, calls: Calls, before: list[Act], act: Act, fsyncs: list[str]
) -> None:
    store = steady(PAUSED, home, calls, *before)

    act(store)

    assert calls.of("fsync") == fsyncs


def test_remove_of_both_forgets_the_claim_for_good_before_the_record(home: Path, calls: Calls) -> None:
    store = steady(PAUSED, home, calls, save, claim, save)

    store.remove("a")

    assert [call for call in calls.of("rename", "unlink", "fsync") if "tmp" not in call] == [
        "rename a.inflight",
        FOLDER,
        "unlink a.json",
        FOLDER,
        "unlink a.lease",
    ]


def test_recovering_many_runs_takes_one_fsync(home: Path, calls: Calls) -> None:
    runs = [f"run-{n}" for n in range(5)]
    store = steady(PAUSED, home, calls, *(lambda store, run=run: store.save(samples.paused(run)) for run in runs))
    for run in runs:
        store.claim(run)
    calls.start()

    assert store.recover_orphaned() == 5

    assert calls.of("fsync") == [FOLDER]


@pytest.mark.parametrize(
    ("kind", "act"),
    [
        (PAUSED, lambda store: store.complete("a")),
        (PAUSED, lambda store: store.remove("a")),
        (PAUSED, lambda store: store.claim("a")),
        (PAUSED, lambda store: store.recover_orphaned()),
        (RESUME, lambda store: store.delete("a")),
        (EFFECTS, lambda store: store.delete_checkpoint("a")),
        (RUNS, lambda store: store.delete_run("a")),
    ],
    ids=["complete", "remove", "claim", "recover", "resume delete", "effects delete", "runs delete"],
)
def test_a_call_that_finds_it_done_syncs_for_the_writer_before(home: Path, calls: Calls, kind: Kind, act: Act) -> None:
    store = steady(kind, home, calls)

    act(store)

    assert calls.of("fsync") == [FOLDER]


@pytest.mark.parametrize("kind", [RESUME, EFFECTS], ids=str)
def test_a_whole_save_takes_two_fsyncs(home: Path, calls: Calls, kind: Kind) -> None:
    assert kind.save is not None
    store = steady(kind, home, calls)

    kind.save(store, "a", 1)
    kind.save(store, "a", 2)

    assert calls.of("fsync") == [f"fsync {kind.file}.tmp", FOLDER] * 2


@pytest.mark.parametrize("kind", [RESUME, EFFECTS, RUNS], ids=str)
def test_a_deletion_takes_one_fsync(home: Path, calls: Calls, kind: Kind) -> None:
    assert kind.delete is not None
    store = steady(kind, home, calls, lambda store: kind.change(store, "a", 1))

    kind.delete(store, "a")

    assert calls.of("unlink", "fsync") == [f"unlink {kind.file}.tmp", f"unlink {kind.file}", FOLDER]


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_the_first_change_of_a_record_writes_it_whole(home: Path, calls: Calls, kind: Kind) -> None:
    store = steady(kind, home, calls)

    kind.change(store, "a", 1)

    assert calls.of("fsync") == [f"fsync {kind.file}.tmp", FOLDER]


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_further_change_takes_one_fsync(home: Path, calls: Calls, kind: Kind) -> None:
    store = steady(kind, home, calls, lambda store: kind.change(store, "a", 1))

    kind.change(store, "a", 2)
    kind.change(store, "a", 3)

    assert calls.of("write", "fsync") == [f"write {kind.file}", f"fsync {kind.file}"] * 2


@pytest.mark.parametrize(
    "act",
    [lambda store: store.create_run(samples.run("a")), lambda store: store.update_context("a", 1)],
    ids=["create", "update"],
)
def test_a_change_of_a_run_takes_one_fsync(home: Path, calls: Calls, act: Act) -> None:
    store = steady(RUNS, home, calls, lambda store: store.create_run(samples.run("a")))

    act(store)

    assert calls.of("fsync") == ["fsync a.journal"]


def test_a_fork_takes_two_fsyncs(home: Path, calls: Calls) -> None:
    store = steady(SNAPSHOTS, home, calls, lambda store: store.save(samples.snapshot("a")))

    run = store.fork(samples.key("a"))

    assert calls.of("fsync") == [f"fsync wf.{run}.journal.tmp", FOLDER]


def test_a_fork_syncs_a_source_of_another_handle_first(home: Path, calls: Calls) -> None:
    SNAPSHOTS.open(home, "process").save(samples.snapshot("a"))
    store = steady(SNAPSHOTS, home, calls)

    run = store.fork(samples.key("a"))

    assert calls.of("fsync") == ["fsync wf.a.journal", FOLDER, f"fsync wf.{run}.journal.tmp", FOLDER]


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_reader_costs_the_writer_no_fsync(home: Path, calls: Calls, kind: Kind) -> None:
    store = steady(kind, home, calls, lambda store: kind.change(store, "a", 1))
    journal = store._tasks if kind is EFFECTS else store._runs
    ids = ("wf", "a") if kind is SNAPSHOTS else ("a",)

    with journal.view(*ids):  # as a thread does that is slow to read
        kind.change(store, "a", 2)
    kind.change(store, "a", 3)

    assert calls.of("fsync") == [f"fsync {kind.file}"] * 2


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_compaction_takes_two_fsyncs(home: Path, calls: Calls, kind: Kind) -> None:
    store = steady(kind, home, calls, *(lambda store, n=n: kind.change(store, "a", n) for n in range(65)))

    kind.change(store, "a", 65)

    assert calls.of("fsync") == [f"fsync {kind.file}.tmp", FOLDER]


def test_a_repeated_mark_by_the_same_handle_needs_no_fsync(home: Path, calls: Calls) -> None:
    mark: Act = lambda store: EFFECTS.change(store, "a", 1)  # noqa: E731
    store = steady(EFFECTS, home, calls, mark)

    mark(store)

    assert calls.of("write", "fsync") == []


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_first_call_of_a_handle_syncs_the_name_of_the_folder(home: Path, calls: Calls, kind: Kind) -> None:
    steady(kind, home, calls)
    store = kind.open(home, "power")

    kind.change(store, "a", 1)
    kind.change(store, "b", 1)

    of_a, of_b = f"fsync {kind.file}.tmp", f"fsync {kind.file.replace('a.j', 'b.j')}.tmp"
    assert calls.of("fsync") == [f"fsync {home.parent.name}", of_a, FOLDER, of_b, FOLDER]


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_journal_of_another_handle_is_synced_with_its_name_once(home: Path, calls: Calls, kind: Kind) -> None:
    for n in range(2):
        kind.change(kind.open(home, "power"), "a", n)
    store = steady(kind, home, calls)

    kind.change(store, "a", 2)
    kind.change(store, "a", 3)

    write, fsync = f"write {kind.file}", f"fsync {kind.file}"
    assert calls.of("write", "fsync") == [fsync, write, fsync, FOLDER, write, fsync]


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_line_of_another_handle_is_on_the_disk_before_the_next_is_written(
    home: Path, calls: Calls, kind: Kind
) -> None:
    # Its writer may have been killed before the fsync. Were both lines left to one fsync, a power cut in it could
    # keep the second and not the first: a bad line before a good one, which makes the whole record unreadable.
    store = steady(kind, home, calls, lambda store: kind.change(store, "a", 1))
    kind.change(kind.open(home, "process"), "a", 2)
    calls.start()

    kind.change(store, "a", 3)

    write, fsync = f"write {kind.file}", f"fsync {kind.file}"
    assert calls.of("write", "fsync") == [fsync, write, fsync]


def test_a_repeated_mark_of_another_handle_is_synced_once_with_its_name(home: Path, calls: Calls) -> None:
    EFFECTS.change(EFFECTS.open(home, "process"), "a", 1)
    store = steady(EFFECTS, home, calls)

    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 1)

    assert calls.of("fsync") == ["fsync a.json", FOLDER]


def test_a_repeated_mark_in_a_document_alone_is_synced_each_time(home: Path, calls: Calls) -> None:
    # It has no generation, so it may not be the one that was synced.
    store = steady(EFFECTS, home, calls)
    (home / "a.json").write_text(samples.checkpoint("a", completed_tool_ids={"use-1"}).to_json())

    EFFECTS.change(store, "a", 1)
    EFFECTS.change(store, "a", 1)

    assert calls.of("fsync") == ["fsync a.json", FOLDER] * 2


@pytest.mark.parametrize("kind", JOURNALS, ids=str)
def test_a_torn_line_is_cut_off_for_good_before_the_next_is_written(home: Path, calls: Calls, kind: Kind) -> None:
    store = steady(kind, home, calls, lambda store: kind.change(store, "a", 1))
    with (home / kind.file).open("ab") as file:
        file.write(b"00000000 00000009 {")
    calls.start()

    kind.change(store, "a", 2)

    write, fsync = f"write {kind.file}", f"fsync {kind.file}"
    assert calls.of("write", "fsync", "ftruncate") == [f"ftruncate {kind.file}", fsync, write, fsync]
