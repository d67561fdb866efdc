"""What a power cut leaves of a file's sectors, pages and size."""

from __future__ import annotations

import pytest

from pytest_wfstate.faults.bounds import Model
from pytest_wfstate.faults.disk.losses import Rank
from pytest_wfstate.faults.disk.models import crash_points
from pytest_wfstate.faults.disk.unsynced import FileAt
from pytest_wfstate.faults.trace.ops import (
    HOME,
    PAGE,
    SECTOR,
    Allocate,
    Create,
    Fsync,
    Item,
    Link,
    Trace,
    Truncate,
    Write,
)
from tests.unit.faults.disk.small_disks import POWER, contents, left, tree

JOURNALING = ("ext4", "xfs")


def synchronous(op: Write, *, data_only: bool = True) -> list[Item]:
    """A write with O_DSYNC, or else O_SYNC."""
    return [op, Fsync(op.node, data_only, span=(op.offset, op.end))]


class TestASynchronousWrite:
    @pytest.mark.parametrize("model", POWER)
    @pytest.mark.parametrize("data_only", [True, False])
    def test_keeps_its_own_pages_and_no_others(self, model: Model, data_only: bool) -> None:
        items = [Write(1, 0, b"a"), *synchronous(Write(1, PAGE, b"b"), data_only=data_only)]
        disks = left(items, model, tree(a=b"o" * PAGE + b"o"))
        assert contents(disks, "a") == {b"a" + b"o" * (PAGE - 1) + b"b", b"o" * PAGE + b"b"}

    @pytest.mark.parametrize("model", POWER)
    def test_keeps_the_size_needed_to_read_it_but_not_the_data_before_it(self, model: Model) -> None:
        items = [Write(1, 0, b"a"), *synchronous(Write(1, PAGE, b"b"))]
        assert contents(left(items, model, tree(a=b"")), "a") == {
            b"a" + bytes(PAGE - 1) + b"b",
            bytes(PAGE) + b"b",
        }

    @pytest.mark.parametrize("model", POWER)
    def test_does_not_keep_a_size_that_only_later_bytes_need(self, model: Model) -> None:
        items: list[Item] = [Write(1, 0, b"a" * 10), Write(1, PAGE, b"b"), Fsync(1, data_only=True, span=(0, 10))]
        sizes = {len(data) for data in contents(left(items, model, tree(a=b"")), "a") if isinstance(data, bytes)}
        assert sizes == {10, PAGE + 1}

    @pytest.mark.parametrize("model", POWER)
    def test_keeps_what_was_written_to_its_sector_before(self, model: Model) -> None:
        items = [Write(1, 0, b"a"), *synchronous(Write(1, 1, b"b"))]
        assert contents(left(items, model, tree(a=b"oo")), "a") == {b"ab"}

    def test_keeps_the_rest_of_its_page_only_where_pages_are_written_whole(self) -> None:
        items = [Write(1, 0, b"a"), *synchronous(Write(1, SECTOR, b"b"))]
        old = tree(a=b"o" * SECTOR + b"o")
        whole, half = b"a" + b"o" * (SECTOR - 1) + b"b", b"o" * SECTOR + b"b"
        assert contents(left(items, "posix", old), "a") == {whole, half}
        assert contents(left(items, "xfs", old), "a") == {whole}

    @pytest.mark.parametrize("model", JOURNALING)
    def test_commits_the_journal_like_fsync_or_fdatasync(self, model: Model) -> None:
        before: list[Item] = [Create(HOME, "b", 2)]
        op = Write(1, 0, b"n")
        assert {"a": b"n"} in left([*before, *synchronous(op)], model, tree(a=b"o"))
        assert left([*before, *synchronous(op, data_only=False)], model, tree(a=b"o")) == [{"a": b"n", "b": b""}]

    @pytest.mark.parametrize("model", POWER)
    def test_that_failed_leaves_its_own_pages_clean_and_no_others(self, model: Model) -> None:
        items: list[Item] = [Write(1, 0, b"a"), Write(1, PAGE, b"b"), Fsync(1, failed=True, span=(PAGE, PAGE + 1))]
        disks = left([*items, Fsync(1)], model, tree(a=b"o" * PAGE + b"o"))
        assert contents(disks, "a") == {b"a" + b"o" * (PAGE - 1) + b"b", b"a" + b"o" * PAGE}


class TestSectors:
    OLD, NEW = b"o" * SECTOR, b"n" * SECTOR

    def test_of_one_write_are_independent_under_posix(self) -> None:
        disks = left([Write(1, 0, self.NEW * 3)], "posix", tree(a=self.OLD * 3))
        assert contents(disks, "a") == {a + b + c for a in self.pair() for b in self.pair() for c in self.pair()}

    def test_hold_a_prefix_of_the_writes_to_them_under_posix(self) -> None:
        items = [Write(1, 0, b"1" * SECTOR * 2), Write(1, 0, b"2")]
        disks = left(items, "posix", tree(a=self.OLD * 2))
        first = {self.OLD, b"1" * SECTOR, b"2" + b"1" * (SECTOR - 1)}
        assert contents(disks, "a") == {a + b for a in first for b in (self.OLD, b"1" * SECTOR)}

    @pytest.mark.parametrize("model", JOURNALING)
    def test_of_a_torn_page_are_its_first_or_its_last(self, model: Model) -> None:
        disks = left([Write(1, 0, self.NEW * 3)], model, tree(a=self.OLD * 3))
        new = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (2, 3)]
        assert contents(disks, "a") == {
            self.OLD * start + self.NEW * (end - start) + self.OLD * (3 - end) for start, end in new
        }

    def test_that_tell_most_are_tried_before_any_combination(self) -> None:
        """The write is lost, its first sector is, and all but its last are."""
        *_, last = crash_points(Trace(tree(a=self.OLD * 5), [Write(1, 0, self.NEW * 5)]), "posix")
        early = [last.tree(loss).data[1] for rank, loss in last.losses() if rank < Rank.MORE]
        assert early[:3] == [self.NEW * 5, self.OLD * 5, self.OLD + self.NEW * 4]
        assert self.OLD * 4 + self.NEW in early

    def test_of_a_lost_write_are_lost_together_first(self) -> None:
        items = [Write(1, 0, self.NEW * 4), Write(1, 4 * SECTOR, self.NEW * 4)]
        *_, last = crash_points(Trace(tree(a=self.OLD * 8), list(items)), "posix")
        early = [last.tree(loss).data[1] for rank, loss in last.losses() if rank <= Rank.ONE_LOST]
        assert early[2:4] == [self.OLD * 4 + self.NEW * 4, self.NEW * 4 + self.OLD * 4]

    @pytest.mark.parametrize("model", POWER)
    def test_that_hold_the_same_as_before_cannot_be_lost(self, model: Model) -> None:
        data = self.OLD + self.NEW + self.OLD * 6
        *_, last = crash_points(Trace(tree(a=self.OLD * 8), [Write(1, 0, data)]), model)
        assert last.possible == 2

    @pytest.mark.parametrize("model", POWER)
    def test_of_a_large_file_are_not_looked_at_before_they_are_lost(
        self, model: Model, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def losses(*_: object) -> None:
            raise AssertionError("a sector was looked at")

        monkeypatch.setattr(FileAt, "losses", losses)
        monkeypatch.setattr(FileAt, "content", losses)
        size = 256 * PAGE
        *_, last = crash_points(Trace(tree(a=b"o" * size), [Write(1, 0, b"n" * size)]), model)
        assert last.possible > 2**256
        assert len(last.parts[1].axes) == (2048 if model == "posix" else 256)

    def pair(self) -> tuple[bytes, bytes]:
        return self.OLD, self.NEW


class TestATruncate:
    @pytest.mark.parametrize("model", POWER)
    def test_inside_a_page_may_leave_the_old_size_and_zeros_behind_the_cut(self, model: Model) -> None:
        assert contents(left([Truncate(1, 2)], model, tree(a=b"old")), "a") == {b"old", b"ol\0", b"ol"}

    @pytest.mark.parametrize("model", POWER)
    def test_leaves_no_zeros_behind_the_page_of_the_cut(self, model: Model) -> None:
        old = b"o" * (PAGE + 5)
        left_of = contents(left([Truncate(1, PAGE - 1)], model, tree(a=old)), "a")
        assert left_of == {old, old[: PAGE - 1] + b"\0" + old[PAGE:], old[: PAGE - 1]}
        assert contents(left([Truncate(1, PAGE)], model, tree(a=old)), "a") == {old, old[:PAGE]}

    @pytest.mark.parametrize("model", POWER)
    def test_that_is_torn_is_completed_by_fsync(self, model: Model) -> None:
        assert contents(left([Truncate(1, 2), Fsync(1)], model, tree(a=b"old")), "a") == {b"ol"}

    @pytest.mark.parametrize("model", JOURNALING)
    @pytest.mark.parametrize(
        ("resize", "new"), [(Truncate(1, 0), b""), (Truncate(1, 5), b"old\0\0"), (Allocate(1, 5), b"old\0\0")]
    )
    def test_is_durable_if_a_later_name_is(self, model: Model, resize: Item, new: bytes) -> None:
        old = b"old"
        items: list[Item] = [resize, Link(HOME, "b", 2)]
        disks = left(items, model, tree(a=old, c=b""))
        assert {disk["a"] for disk in disks if "b" in disk} == {new}
        assert contents(left([*items, Fsync(HOME)], model, tree(a=old, c=b"")), "a") == {new}

    @pytest.mark.parametrize("model", JOURNALING)
    def test_is_lost_with_the_names_before_it(self, model: Model) -> None:
        disks = left([Link(HOME, "b", 2), Truncate(1, 0)], model, tree(a=b"old", c=b""))
        assert {disk["a"] for disk in disks if "b" not in disk} == {b"old"}

    def test_under_posix_may_be_lost_although_a_later_name_is_durable(self) -> None:
        items: list[Item] = [Truncate(1, 0), Create(HOME, "b", 2), Fsync(HOME)]
        assert contents(left(items, "posix", tree(a=b"old")), "a") == {b"old", b""}

    @pytest.mark.parametrize("model", JOURNALING)
    def test_shows_wherever_a_freed_page_shows_later_data(self, model: Model) -> None:
        old, new = b"o" * 2 * PAGE, b"n" * PAGE
        assert contents(left([Truncate(1, 0), Write(1, 0, new)], model, tree(a=old)), "a") == {old, b"", new}

    @pytest.mark.parametrize("model", JOURNALING)
    def test_need_not_show_where_a_page_below_the_cut_does(self, model: Model) -> None:
        items: list[Item] = [Truncate(1, PAGE), Write(1, 0, b"n")]
        assert b"n" + b"o" * (2 * PAGE - 1) in contents(left(items, model, tree(a=b"o" * 2 * PAGE)), "a")


class TestAfterAFailedFsync:
    @pytest.mark.parametrize("model", POWER)
    def test_the_same_bytes_written_again_are_kept_with_their_size(self, model: Model) -> None:
        items: list[Item] = [Write(1, 3, b"er"), Fsync(1, failed=True), Write(1, 3, b"er"), Fsync(1)]
        assert contents(left(items, model, tree(a=b"new")), "a") == {b"newer"}

    @pytest.mark.parametrize("model", POWER)
    def test_only_the_pages_written_again_are_kept(self, model: Model) -> None:
        data = b"1" * PAGE + b"2"
        items: list[Item] = [Write(1, 0, data), Fsync(1, failed=True), Write(1, PAGE, b"2"), Fsync(1)]
        lost = bytes(PAGE) + b"2"
        assert {data, lost} <= contents(left(items, model, tree(a=b"")), "a")
        assert {len(data)} == {len(kept) for kept in contents(left(items, model, tree(a=b"")), "a") if kept}

    @pytest.mark.parametrize("model", POWER)
    def test_a_size_that_nothing_written_again_needs_stays_volatile(self, model: Model) -> None:
        data = b"1" * PAGE + b"2"
        items: list[Item] = [Write(1, 0, data), Fsync(1, failed=True), Write(1, 0, b"1"), Fsync(1)]
        assert {data[:PAGE], data} <= contents(left(items, model, tree(a=b"")), "a")
        assert b"" not in contents(left(items, model, tree(a=b"")), "a")
