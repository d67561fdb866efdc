"""The scorecard counts honestly: a clause that was not seen to hold is never counted as kept."""

from __future__ import annotations

from pytest_wfstate.report.failures import group_lines
from pytest_wfstate.report.scorecard import Item, Row, rows_of, scorecard, violations


def item(result: str, level: str = "core", text: str = "", suite: str = "TestStore", clause: str = "a.b.c") -> Item:
    return Item(suite, clause, level, result, text)


def test_a_level_is_passed_of_asked() -> None:
    row = Row("store", [item("passed"), item("failed"), item("not offered"), item("passed", "safe")])
    assert [row.level(level) for level in ("core", "safe", "hardened")] == ["1/3", "1/1", "-"]


def test_each_result_is_counted_in_its_column() -> None:
    results = ["passed", "failed", "not offered", "not applicable", "skipped", "not measured"]
    row = Row("store", [item(result) for result in results], not_asked=7)
    assert row.cells() == ("store", "1/5", "-", "-", "1", "2", "1", "7")


def test_a_table_is_aligned_and_its_notes_follow() -> None:
    rows = [
        Row("paused.file", [item("passed")] * 12, 3),
        Row("b", [item("passed"), *[item("not offered", text="not offered: no list")] * 2]),
    ]
    assert scorecard(rows).splitlines() == [
        "store         core  safe  hardened  failed  skipped  not measured  not asked",
        "paused.file  12/12     -         -       0        0             0          3",
        "b              1/3     -         -       0        2             0          0",
        "",
        "b: 2 skipped: not offered: no list",
    ]


def test_a_note_names_what_a_pass_did_without() -> None:
    row = Row("store", [Item("TestStore", "a.b.c", "core", "passed", left_out=("not offered: no list",))])
    assert row.notes() == ["1 passed in part: not offered: no list"]


def test_a_note_says_how_little_a_bound_left() -> None:
    bounded_to = ("26 of 7,146,580 combinations, 12 of 40 call sites crashed", "1 of at least 2 schedules")
    row = Row("store", [Item("TestStore", f"a.b.{n}", "core", "passed", bounded_to=bounded_to) for n in range(10)])
    assert row.notes() == [
        "a bound cut off 20 explorations: a larger profile tries more",
        *(
            f"a.b.{n}: 26 of 7,146,580 combinations, 12 of 40 call sites crashed; and 1 more exploration"
            for n in range(8)
        ),
        "2 more tests",
    ]
    assert row.in_a_line() == "store: core 10/10; 20 explorations cut off by a bound"


def test_a_note_names_what_a_pass_does_not_prove() -> None:
    limit = "a killed server shows the death of a process, not a power cut"
    row = Row("store", [Item("TestStore", "a.b.c", "core", result, limits=(limit,)) for result in ("passed", "failed")])
    assert row.notes() == [limit]
    assert row.in_a_line() == f"store: core 1/2; 1 failed; {limit}"


def test_only_clauses_seen_to_hold_are_clean() -> None:
    assert Row("store", [item("passed"), item("not offered"), item("known"), item("not seen")]).is_clean
    assert not Row("store", [item("passed"), item("failed")]).is_clean
    assert not Row("store", [item("passed"), item("not measured")]).is_clean
    assert not Row("store", [item("not offered")]).is_clean
    assert not Row("store", []).is_clean


def test_a_test_that_is_not_a_clause_can_fail_too() -> None:
    row = Row("store", [item("passed"), item("failed", level="", text="it is not whole", clause="test_suite_is_whole")])
    assert row.cells()[1:5] == ("1/1", "-", "-", "1")
    assert violations([row]) == "store: test_suite_is_whole fails: it is not whole"


def test_a_report_is_shown_in_full_or_in_its_only_line() -> None:
    row = Row("store", [item("failed", text="one\ntwo"), *[item("not measured", text="open() raises OSError")] * 2])
    assert violations([row]).splitlines() == [
        "--- store: a.b.c fails ---",
        "one",
        "two",
        "",
        *["store: a.b.c was not measured: open() raises OSError"] * 2,
    ]


def test_a_line_has_no_count_of_0() -> None:
    assert Row("TestStore", [item("passed")]).in_a_line() == "TestStore: core 1/1"
    row = Row("TestStore", [item("known"), item("not applicable"), Item("", "x", "", "passed", forgets=("prompt",))], 2)
    assert row.in_a_line() == (
        "TestStore: core 0/1; 1 known to fail, 1 not applicable, 2 not asked; not compared: prompt"
    )


def test_clauses_that_were_judged_by_own_runs_are_counted_with_the_reason() -> None:
    judged = [Item("TestStore", name, "safe", "passed", own_runs=("load() lies", "x")) for name in ("a.b.c", "a.b.d")]
    assert Row("TestStore", [*judged, item("failed")]).in_a_line() == (
        "TestStore: core 0/1, safe 2/2; 1 failed; 2 clauses judged against the store's own uninterrupted runs, since "
        "load() lies"
    )


def test_a_deviation_that_no_clause_reports_is_not_clean() -> None:
    judged = Item("TestStore", "a.kill.c", "safe", "passed", is_injected=True, own_runs=("load() lies",))
    assert Row("TestStore", [judged, item("passed")]).unreported() == "load() lies"
    assert not Row("TestStore", [judged, item("passed")]).is_clean
    for reported in ("known", "failed", "not measured"):
        assert Row("TestStore", [judged, item(reported)]).unreported() == ""
    assert Row("TestStore", [judged, item("known")]).is_clean


def test_what_fails_for_the_same_reason_is_shown_once() -> None:
    def failed(clause: str, cause: str, *, is_injected: bool = False) -> Item:
        return Item("TestStore", clause, "core", "failed", f"{clause}\nin full", cause=cause, is_injected=is_injected)

    items = [
        failed("a.kill.c", "kill", is_injected=True),
        failed("a.b", "lies"),
        failed("a.c", "lies"),
        failed("a.d", ""),
    ]
    assert violations([Row("store", items)]).splitlines() == [
        *("--- store: a.b fails ---", "a.b", "in full", ""),
        "store: a.c fails, as a.b does, because lies",
        *("--- store: a.d fails ---", "a.d", "in full", ""),
        *("--- store: a.kill.c fails ---", "a.kill.c", "in full"),
    ]
    assert group_lines(items) == [
        "a.b and 1 more fail because lies: fix this first",
        "a.d fails",
        "a.kill.c fails because kill",
    ]
    assert group_lines(items[:2]) == []


def test_every_suite_has_a_row_even_if_nothing_is_asked_of_it() -> None:
    rows = rows_of([item("passed", suite="TestA"), item("failed", suite="TestA")], {"TestB": 5})
    assert {row.name: (len(row.items), row.not_asked) for row in rows} == {"TestA": (2, 0), "TestB": (0, 5)}


def test_an_item_is_read_from_properties_and_the_last_result_counts() -> None:
    """A teardown that fails is a failure, whatever the test itself did."""
    pairs = [
        ("wfstate_clause", "a.b.c"),
        ("wfstate_level", "safe"),
        ("wfstate_result", "passed"),
        ("wfstate_result", "failed"),
    ]
    assert Item.of("TestA", "test_b_c", "failed", "why", pairs) == item("failed", "safe", "why", "TestA")
    assert Item.of("TestA", "test_mine", "passed", "", []) == item("passed", "", "", "TestA", "test_mine")
