"""What each model keeps: every rule, in the smallest trace that shows it."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_wfstate.faults.bounds import MODELS, Model
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.states import Counters, CrashedRun, distinct_states
from pytest_wfstate.faults.trace.ops import (
    HOME,
    PAGE,
    SECTOR,
    Ack,
    Allocate,
    Create,
    Fsync,
    Item,
    Link,
    Rename,
    Sync,
    Trace,
    Tree,
    Truncate,
    Unlink,
    Write,
    replay,
)
from tests.unit.faults.disk.small_disks import POWER, Disk, contents, left, tree


class TestKill:
    def test_every_completed_op_survives(self) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Write(1, 0, b"x"), Create(HOME, "b", 2), Unlink(HOME, "b", 2)]
        assert left(items, "kill") == [{"a": b"x"}]

    def test_a_write_may_be_cut_at_a_page(self) -> None:
        data = b"1" * PAGE + b"2" * PAGE + b"3"
        disks = left([Create(HOME, "a", 1), Write(1, 0, data)], "kill")
        assert contents(disks, "a") == {data, data[: 2 * PAGE], data[:PAGE]}

    def test_only_the_last_write_is_cut(self) -> None:
        data = b"1" * 2 * PAGE
        items: list[Item] = [Create(HOME, "a", 1), Write(1, 0, data), Create(HOME, "b", 2)]
        assert left(items, "kill") == [{"a": data, "b": b""}]

    def test_cuts_follow_the_pages_of_the_file_not_of_the_write(self) -> None:
        disks = left([Write(1, PAGE - 1, b"xy")], "kill", tree(a=b"o" * PAGE))
        assert contents(disks, "a") == {b"o" * (PAGE - 1) + b"xy", b"o" * (PAGE - 1) + b"x"}


class TestData:
    @pytest.mark.parametrize("model", POWER)
    def test_is_volatile_until_fsync(self, model: Model) -> None:
        start = tree(a=b"old")
        assert contents(left([Write(1, 0, b"new")], model, start), "a") == {b"old", b"new"}
        assert contents(left([Write(1, 0, b"new"), Fsync(1)], model, start), "a") == {b"new"}

    @pytest.mark.parametrize("model", POWER)
    def test_is_kept_by_fdatasync_and_by_sync(self, model: Model) -> None:
        start = tree(a=b"old")
        for sync in (Fsync(1, data_only=True), Sync()):
            assert contents(left([Write(1, 0, b"new"), sync], model, start), "a") == {b"new"}

    @pytest.mark.parametrize("model", POWER)
    def test_of_another_file_is_not_kept(self, model: Model) -> None:
        assert b"old" in contents(left([Write(1, 0, b"new"), Fsync(2)], model, tree(a=b"old", b=b"")), "a")

    @pytest.mark.parametrize("model", POWER)
    def test_of_a_page_later_writes_imply_earlier_ones(self, model: Model) -> None:
        disks = left([Write(1, 0, b"1"), Write(1, 1, b"2")], model, tree(a=b"oo"))
        assert contents(disks, "a") == {b"oo", b"1o", b"12"}

    @pytest.mark.parametrize("model", POWER)
    def test_pages_are_independent(self, model: Model) -> None:
        old = b"o" * 2 * PAGE
        disks = left([Write(1, 0, b"1"), Write(1, PAGE, b"2")], model, tree(a=old))
        assert b"o" * PAGE + b"2" + b"o" * (PAGE - 1) in contents(disks, "a")

    @pytest.mark.parametrize("model", POWER)
    def test_a_tear_inside_a_page_is_at_a_sector_and_keeps_the_beginning_or_the_end(self, model: Model) -> None:
        disks = left([Write(1, 100, b"n" * 600)], model, tree(a=b"o" * 1000))
        beginning = b"o" * 100 + b"n" * (SECTOR - 100) + b"o" * (1000 - SECTOR)
        end = b"o" * SECTOR + b"n" * (700 - SECTOR) + b"o" * 300
        assert contents(disks, "a") == {b"o" * 1000, b"o" * 100 + b"n" * 600 + b"o" * 300, beginning, end}

    @pytest.mark.parametrize("model", ["ext4", "xfs"])
    def test_size_follows_data(self, model: Model) -> None:
        data = b"1" * PAGE + b"2" * 10
        disks = left([Fsync(HOME), Write(1, 0, data)], model, tree(a=b""))
        assert contents(disks, "a") == {b"", data[:PAGE], data}

    def test_under_posix_size_may_land_without_data(self) -> None:
        disks = left([Write(1, 0, b"data")], "posix", tree(a=b""))
        assert contents(disks, "a") == {b"", b"data", bytes(4)}

    def test_under_posix_data_without_its_size_is_not_there(self) -> None:
        disks = left([Write(1, 1, b"x")], "posix", tree(a=b"o"))
        assert contents(disks, "a") == {b"o", b"ox", b"o\0"}

    @pytest.mark.parametrize("model", POWER)
    def test_a_missing_page_below_the_size_reads_as_zeros(self, model: Model) -> None:
        disks = left([Write(1, PAGE, b"x"), Fsync(1)], model, tree(a=b""))
        assert contents(disks, "a") == {bytes(PAGE) + b"x"}

    @pytest.mark.parametrize("model", POWER)
    def test_a_truncate_zeroes_what_lies_past_it(self, model: Model) -> None:
        items: list[Item] = [Truncate(1, 1), Truncate(1, 3), Fsync(1)]
        assert contents(left(items, model, tree(a=b"old")), "a") == {b"o\0\0"}

    @pytest.mark.parametrize("model", POWER)
    def test_a_truncate_may_land_without_the_write_after_it(self, model: Model) -> None:
        disks = left([Truncate(1, 0), Write(1, 0, b"new")], model, tree(a=b"old"))
        assert {b"old", b"", b"new"} <= contents(disks, "a")

    @pytest.mark.parametrize("model", POWER)
    def test_allocating_changes_the_size_only_upwards(self, model: Model) -> None:
        assert contents(left([Allocate(1, 2)], model, tree(a=b"old")), "a") == {b"old"}
        assert contents(left([Allocate(1, 5), Fsync(1)], model, tree(a=b"old")), "a") == {b"old\0\0"}

    @pytest.mark.parametrize("model", POWER)
    def test_any_name_of_a_file_syncs_it(self, model: Model) -> None:
        items: list[Item] = [Rename(HOME, "a", HOME, "b", 1), Write(1, 0, b"new"), Fsync(1), Fsync(HOME)]
        assert left(items, model, tree(a=b"old")) == [{"b": b"new"}]


class TestAFailedFsync:
    @pytest.mark.parametrize("model", POWER)
    def test_leaves_pages_that_no_later_fsync_writes(self, model: Model) -> None:
        items: list[Item] = [Write(1, 0, b"new"), Fsync(1, failed=True), Fsync(1)]
        assert contents(left(items, model, tree(a=b"old")), "a") == {b"old", b"new"}

    @pytest.mark.parametrize("model", POWER)
    def test_is_repaired_by_writing_the_page_again(self, model: Model) -> None:
        items: list[Item] = [Write(1, 0, b"new"), Fsync(1, failed=True), Write(1, 0, b"n"), Fsync(1)]
        assert contents(left(items, model, tree(a=b"old")), "a") == {b"new"}

    @pytest.mark.parametrize("model", POWER)
    def test_of_a_folder_leaves_names_volatile(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Fsync(HOME, failed=True), Fsync(HOME)]
        assert {} in left(items, model)

    @pytest.mark.parametrize("model", POWER)
    def test_of_a_folder_is_repaired_by_the_next_change_in_it(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Fsync(HOME, failed=True), Create(HOME, "b", 2), Fsync(HOME)]
        assert left(items, model) == [{"a": b"", "b": b""}]


class TestNames:
    @pytest.mark.parametrize("model", POWER)
    def test_are_volatile_until_the_folder_is_synced(self, model: Model) -> None:
        assert {} in left([Create(HOME, "a", 1)], model)
        assert left([Create(HOME, "a", 1), Fsync(HOME)], model) == [{"a": b""}]

    @pytest.mark.parametrize("model", POWER)
    def test_are_kept_by_fdatasync_of_the_folder_too(self, model: Model) -> None:
        assert left([Create(HOME, "a", 1), Fsync(HOME, data_only=True)], model) == [{"a": b""}]

    @pytest.mark.parametrize("model", POWER)
    def test_an_unlink_can_be_lost(self, model: Model) -> None:
        assert left([Unlink(HOME, "a", 1)], model, tree(a=b"x")) == [{}, {"a": b"x"}]

    @pytest.mark.parametrize("model", POWER)
    def test_a_rename_in_one_folder_is_atomic(self, model: Model) -> None:
        disks = left([Rename(HOME, "a", HOME, "b", 1, 2)], model, tree(a=b"new", b=b"old"))
        assert disks == [{"b": b"new"}, {"a": b"new", "b": b"old"}]

    def test_under_posix_any_subset_survives(self) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Create(HOME, "b", 2)]
        assert {"b": b""} in left(items, "posix")

    @pytest.mark.parametrize("model", ["ext4", "xfs"])
    def test_elsewhere_a_prefix_survives(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Create(HOME, "b", 2)]
        assert left(items, model) == [{"a": b"", "b": b""}, {}, {"a": b""}]

    def test_under_posix_a_kept_rename_needs_no_create(self) -> None:
        items: list[Item] = [Create(HOME, "tmp", 1), Write(1, 0, b"x"), Fsync(1), Rename(HOME, "tmp", HOME, "a", 1)]
        assert left(items, "posix") == [{"a": b"x"}, {}, {"tmp": b"x"}]

    def test_under_posix_fsync_of_a_file_does_not_keep_its_name(self) -> None:
        assert {} in left([Create(HOME, "a", 1), Fsync(1)], "posix")

    @pytest.mark.parametrize("model", ["ext4", "xfs"])
    def test_elsewhere_fsync_of_a_file_keeps_the_names_up_to_its_last_change(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Create(HOME, "b", 2), Fsync(1), Create(HOME, "c", 3)]
        assert left(items, model) == [
            {"a": b"", "b": b"", "c": b""},
            {"a": b""},
            {"a": b"", "b": b""},
        ]

    @pytest.mark.parametrize("model", ["ext4", "xfs"])
    def test_elsewhere_fdatasync_keeps_the_names_up_to_its_last_change_of_size(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Write(1, 0, b"xx"), Create(HOME, "b", 2), Write(1, 0, b"y")]
        assert {"a": b"yx"} in left([*items, Fsync(1, data_only=True)], model)
        assert left([*items, Fsync(1)], model) == [{"a": b"yx", "b": b""}]

    @pytest.mark.parametrize("model", ["xfs", "posix"])
    def test_a_rename_can_land_before_its_data(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "tmp", 2), Write(2, 0, b"new"), Rename(HOME, "tmp", HOME, "a", 2, 1)]
        assert {"a": b""} in left(items, model, tree(a=b"old"))

    def test_on_ext4_a_rename_that_replaces_flushes_the_data(self) -> None:
        items: list[Item] = [Create(HOME, "tmp", 2), Write(2, 0, b"new"), Rename(HOME, "tmp", HOME, "a", 2, 1)]
        assert {"a": b""} not in left(items, "ext4", tree(a=b"old"))
        assert contents(left(items, "ext4", tree(a=b"old")), "a") == {b"old", b"new"}

    def test_on_ext4_such_a_rename_does_not_flush_what_an_fsync_failed_to(self) -> None:
        data = b"n" * PAGE + b"n"
        failed: list[Item] = [Create(HOME, "tmp", 2), Write(2, 0, data), Fsync(2, failed=True)]
        renamed: list[Item] = [Rename(HOME, "tmp", HOME, "a", 2, 1), Fsync(HOME)]
        assert {b"", data} <= contents(left([*failed, *renamed], "ext4", tree(a=b"old")), "a")
        again = [*failed, Write(2, PAGE, b"n"), *renamed]  # only the second page
        assert {bytes(PAGE) + b"n", data} <= contents(left(again, "ext4", tree(a=b"old")), "a")
        assert b"" not in contents(left(again, "ext4", tree(a=b"old")), "a")

    def test_on_ext4_a_rename_to_a_new_name_does_not(self) -> None:
        items: list[Item] = [Create(HOME, "tmp", 1), Write(1, 0, b"new"), Rename(HOME, "tmp", HOME, "a", 1)]
        assert {"a": b""} in left(items, "ext4")

    def test_on_ext4_what_is_written_after_the_rename_is_volatile(self) -> None:
        items: list[Item] = [
            Create(HOME, "tmp", 2),
            Write(2, 0, b"new"),
            Rename(HOME, "tmp", HOME, "a", 2, 1),
            Fsync(HOME),
            Write(2, 3, b"er"),
        ]
        assert contents(left(items, "ext4", tree(a=b"old")), "a") == {b"new", b"newer"}

    def test_a_link_is_one_more_name(self) -> None:
        disks = left([Link(HOME, "b", 1)], "posix", tree(a=b"x"))
        assert disks == [{"a": b"x", "b": b"x"}, {"a": b"x"}]


class TestFolders:
    @pytest.mark.parametrize("model", POWER)
    def test_a_lost_mkdir_hides_its_subtree(self, model: Model) -> None:
        items: list[Item] = [Create(HOME, "d", 1, "folder"), Create(1, "a", 2), Write(2, 0, b"x"), Fsync(2)]
        assert ({} in left(items, model)) == (model == "posix")
        assert {} in left(items[:3], model)

    def test_under_posix_each_folder_is_synced_on_its_own(self) -> None:
        items: list[Item] = [Create(HOME, "d", 1, "folder"), Create(1, "a", 2), Fsync(1)]
        assert left(items, "posix") == [{"d": None, "d/a": b""}, {}]

    def test_under_posix_a_move_between_folders_may_leave_both_names_but_never_neither(self) -> None:
        start = tree(a=b"x")
        start.entries[HOME, "d"] = 2
        start.add(2, "folder")
        move = Rename(HOME, "a", 2, "a", 1)
        moved: Disk = {"d": None, "d/a": b"x"}
        stayed: Disk = {"a": b"x", "d": None}
        both: Disk = {"a": b"x", "d": None, "d/a": b"x"}

        def seen(*more: Item) -> list[Disk]:
            return sorted(left([move, *more], "posix", start), key=repr)

        assert seen() == sorted([moved, stayed, both], key=repr)
        assert seen(Fsync(2)) == sorted([moved, both], key=repr)
        assert seen(Fsync(HOME)) == [moved]

    @pytest.mark.parametrize("model", ["ext4", "xfs"])
    def test_elsewhere_a_move_between_folders_is_atomic(self, model: Model) -> None:
        start = tree(a=b"x")
        start.entries[HOME, "d"] = 2
        start.add(2, "folder")
        move = Rename(HOME, "a", 2, "a", 1)
        assert left([move], model, start) == [{"d": None, "d/a": b"x"}, {"a": b"x", "d": None}]
        assert left([move, Fsync(2)], model, start) == [{"d": None, "d/a": b"x"}]


class TestCrashPoints:
    def test_follow_every_op_and_every_marker(self) -> None:
        items: list[Item] = [Create(HOME, "a", 1), Ack(1), Unlink(HOME, "a", 1)]
        points = [(point.index, point.markers) for point in crash_points(Trace(Tree(), items), "kill")]
        assert points == [(0, 0), (1, 0), (2, 1), (3, 1)]

    def test_count_what_is_possible(self) -> None:
        *_, last = crash_points(Trace(tree(a=b""), [Write(1, 0, b"x"), Create(HOME, "b", 2)]), "posix")
        assert last.possible == 2 * 2 * 2  # the size, the page, the name

    def test_losses_begin_with_all_kept_are_ordered_by_rank_and_cover_everything(self) -> None:
        *_, last = crash_points(Trace(tree(a=b""), [Write(1, 0, b"x"), Create(HOME, "b", 2)]), "posix")
        ranks, losses = zip(*last.losses(), strict=True)
        assert losses[0] == last.kept
        assert len(set(losses)) == len(losses)
        assert list(ranks) == sorted(ranks)
        assert last.is_complete()

    def test_a_file_without_a_name_has_nothing_to_lose(self) -> None:
        items: list[Item] = [Write(1, 0, b"x" * 5 * PAGE), Unlink(HOME, "a", 1), Fsync(HOME)]
        *_, last = crash_points(Trace(tree(a=b""), items), "posix")
        assert last.possible > 2**5
        assert [loss for _, loss in last.losses()] == [last.kept]

    def test_pages_overwritten_with_equal_data_have_nothing_to_lose(self) -> None:
        same = tree(a=bytes(40 * PAGE))
        *_, last = crash_points(Trace(same, [Write(same.entries[HOME, "a"], 0, bytes(40 * PAGE))]), "posix")
        assert [loss for _, loss in last.losses()] == [last.kept]


class TestManyLosses:
    """The losses of one file, or of all names, are bounded."""

    NAMES: tuple[Item, ...] = tuple(Create(HOME, f"{number}", number) for number in range(100, 113))

    @pytest.mark.parametrize(("most", "count"), [(3, 3), (4096, 4096), (5000, 5000), (math.inf, 2**13)])
    def test_are_cut_off_at_a_bound(self, most: float, count: int) -> None:
        *_, last = crash_points(Trace(Tree(), list(self.NAMES)), "posix", most)
        losses = [loss for _, loss in last.losses()]
        assert len(losses) == len(set(losses)) == count
        assert last.is_complete() == (most == math.inf)

    def test_have_the_same_order_with_and_without_a_bound(self) -> None:
        *_, bounded = crash_points(Trace(Tree(), list(self.NAMES)), "posix", 5000)
        *_, unbounded = crash_points(Trace(Tree(), list(self.NAMES)), "posix", math.inf)
        assert list(bounded.losses()) == list(itertools.islice(unbounded.losses(), 5000))

    def test_are_generated_lazily(self) -> None:
        """There may be more than fit in memory, in one part and in several."""
        start = tree(a=b"", b=b"")
        writes = [Write(node, 0, bytes([number]) * 100 * PAGE) for number, node in enumerate(start.data, 1)]
        *_, last = crash_points(Trace(start, [*writes, *self.NAMES]), "posix", math.inf)
        losses = [loss for _, loss in itertools.islice(last.losses(), 20_000)]
        assert len(set(losses)) == 20_000

    @pytest.mark.parametrize("most", [100, math.inf])
    def test_what_is_cut_off_counts_as_skipped(self, most: float) -> None:
        counters = Counters(most=most)
        states = list(distinct_states(CrashedRun(Trace(Tree(), list(self.NAMES)), "posix", (), since=13), counters))
        assert (len(states), counters.skipped) == (min(most, 2**13), 0 if most == math.inf else 2**13 - most)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Short runs over a few files and folders, of ops that a real disk would accept."""
    start = tree(a=b"o" * draw(st.sampled_from([0, 10, 5000]))) if draw(st.booleans()) else Tree()
    now = start.copy()
    items: list[Item] = []
    for number in range(draw(st.integers(1, 7))):
        item = draw(next_items(now, number))
        if item is not None:
            items.append(item)
            now.apply(item)
    return Trace(start, items)


@st.composite
def next_items(draw: st.DrawFn, now: Tree, number: int) -> Item | None:
    linked = set(now.entries.values()) | {HOME}
    files = [node for node, kind in now.kinds.items() if kind == "file" and node in linked]
    folder = draw(st.sampled_from([node for node, kind in now.kinds.items() if kind == "folder" and node in linked]))
    name = draw(st.sampled_from("abc"))
    free = (folder, name) not in now.entries
    kind = draw(st.sampled_from(["create", "mkdir", "ack", "sync", "write", "resize", "fsync", "rename", "link"]))
    if kind in ("create", "mkdir"):
        return Create(folder, name, 10 + number, "file" if kind == "create" else "folder") if free else None
    if kind == "ack":
        return Ack(number)
    if kind == "sync":
        return Fsync(folder)
    if not files:
        return None
    file = draw(st.sampled_from(files))
    if kind == "write":
        size = draw(st.sampled_from([5, 600, 5000]))
        return Write(file, draw(st.sampled_from([0, 100, 4000, PAGE])), bytes([65 + number]) * size)
    if kind == "resize":
        return Truncate(file, draw(st.sampled_from([0, 50, 4500])))
    if kind == "fsync":
        return Fsync(file, data_only=draw(st.booleans()), failed=draw(st.booleans()))
    old = draw(st.sampled_from([entry for entry, node in now.entries.items() if node == file]))
    if kind == "link":
        return Link(folder, name, file) if free else Unlink(*old, file)
    replaced = now.entries.get((folder, name))
    if (folder, name) == old or (replaced is not None and now.kinds[replaced] == "folder"):
        return None
    return Rename(*old, folder, name, file, replaced)


def every_state(trace: Trace, model: Model) -> set[tuple[frozenset[tuple[str, bytes | str | None]], int]]:
    return {
        (frozenset(point.tree(loss).content().items()), point.markers)
        for point in crash_points(trace, model)
        for _, loss in point.losses()
    }


@settings(max_examples=200, deadline=None)
@given(traces())
def test_each_model_allows_every_disk_of_the_stronger_one(trace: Trace) -> None:
    """Every disk of kill is one of ext4, every one of ext4 is one of xfs, and every one of xfs is one of posix."""
    assume(all(point.possible < 1000 for point in crash_points(trace, "posix")))
    kill, ext4, xfs, posix = (every_state(trace, model) for model in MODELS)
    assert kill <= ext4 <= xfs <= posix


@settings(max_examples=200, deadline=None)
@given(traces())
def test_a_kill_between_two_ops_leaves_exactly_what_was_done(trace: Trace) -> None:
    for point in crash_points(trace, "kill"):
        assert point.tree(point.kept).content() == replay(trace.start, trace.items[: point.index]).content()
