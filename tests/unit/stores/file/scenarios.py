"""What the file stores are crashed in the middle of: for each contract every method that changes something.

Each scenario is as short as can be, so that all that a crash can leave is looked at, and not a part of it.
"""

from __future__ import annotations

import itertools
from typing import Any

from pytest_wfstate import (
    FileEffectStore,
    FilePausedStore,
    FileResumeStore,
    FileRunStore,
    FileSnapshotStore,
    MemoryEffectStore,
    MemoryPausedStore,
    MemoryResumeStore,
    MemoryRunStore,
    MemorySnapshotStore,
    samples,
)
from pytest_wfstate.faults.trace.ops import PAGE

from .crashes import CLOCK, IDS, Call, Contract, Damage, Overtaking, Scenario, Torn

FORK = "run-forked"
"""What every fork is named, in all stores of a trial."""


def checkpoint(task_id: str, index: int) -> Call:
    return Call("save_checkpoint", (samples.checkpoint(task_id, step_index=index),))


def mark(task_id: str, use: int, handle: int = 0, **fields: Any) -> Call:
    return Call("mark_step_complete", (task_id, f"use-{use}", samples.effect(f"use-{use}", **fields)), handle, at=use)


def forget(task_id: str) -> Call:
    return Call("delete_checkpoint", (task_id,))


def after(first: Call, call: Call) -> Call:
    return Overtaking(call.method, call.args, call.handle, call.at, first=first)


# So long that the first page of the file ends in the second line after it, and in the first after a longer one.
LONG = Call("save_checkpoint", (samples.checkpoint("a", agent_id="x" * (PAGE - 500)),))
LONGER = Call("save_checkpoint", (samples.checkpoint("a", agent_id="x" * (PAGE - 350)),))


EFFECTS = Contract(
    "effects",
    FileEffectStore,
    lambda: MemoryEffectStore(clock=CLOCK),
    looks=[("load_checkpoint", (one,)) for one in IDS],
    more=[checkpoint("b", 8), mark("b", 9), forget("a")],
    fresh=(mark("z", 1), ("load_checkpoint", ("z",))),
    damaged=samples.checkpoint("a", agent_id="damaged"),
)


def paused(run_id: str, iterations: int) -> Call:
    return Call("save", (samples.paused(run_id, iterations=iterations),))


def claim(run_id: str, handle: int = 0, at: float = 0) -> Call:
    return Call("claim", (run_id,), handle, at)


def complete(run_id: str, handle: int = 0) -> Call:
    return Call("complete", (run_id,), handle)


def recover(*older_than: float, handle: int = 0, at: float = 0) -> Call:
    return Call("recover_orphaned", older_than, handle, at)


def remove(run_id: str) -> Call:
    return Call("remove", (run_id,))


PAUSED = Contract(
    "paused",
    FilePausedStore,
    lambda: MemoryPausedStore(clock=CLOCK),
    looks=[("list", ()), *(("load", (one,)) for one in IDS)],
    more=[paused("b", 9), claim("b"), complete("b"), remove("a")],
    fresh=(paused("z", 1), ("load", ("z",))),
    damaged=samples.paused("a", prompt="damaged"),
)


def point(run_id: str, step: int) -> Call:
    return Call("save", (samples.resume_point(run_id, step=step),))


def delete(run_id: str) -> Call:
    return Call("delete", (run_id,))


RESUME = Contract(
    "resume",
    FileResumeStore,
    lambda: MemoryResumeStore(clock=CLOCK),
    looks=[("load", (one,)) for one in IDS],
    more=[point("b", 9), delete("a")],
    fresh=(point("z", 1), ("load", ("z",))),
    damaged=samples.resume_point("a", next_node_id="damaged"),
)


def snapshot(run_id: str, step: int, number: int = 0) -> Call:
    return Call("save", (samples.snapshot(run_id, step, values={"n": number}),))


def fork(run_id: str, step: int) -> Call:
    return Call("fork", (samples.key(run_id, step), {"edited": True}))


SNAPSHOTS = Contract(
    "snapshots",
    FileSnapshotStore,
    lambda: MemorySnapshotStore(clock=CLOCK, new_id=lambda: FORK),
    looks=[
        *((look, ("wf", run)) for run in ("a", "b", FORK) for look in ("latest", "list")),
        *(("load", (samples.key(run, step),)) for run in ("a", FORK) for step in (0, 1)),
    ],
    more=[snapshot("b", 9), fork("b", 9)],
    fresh=(snapshot("z", 1), ("latest", ("wf", "z"))),
)


def create(run_id: str, number: int) -> Call:
    return Call("create_run", (samples.run(run_id, input=number),))


def update(run_id: str, context: Any, at: float = 0) -> Call:
    return Call("update_context", (run_id, context), at=at)


def step(run_id: str, name: str, number: int) -> Call:
    return Call("upsert_step", (run_id, samples.step(name, result=number)))


def drop(run_id: str) -> Call:
    return Call("delete_run", (run_id,))


RUNS = Contract(
    "runs",
    FileRunStore,
    lambda: MemoryRunStore(clock=CLOCK),
    looks=[(look, (one,)) for one in IDS for look in ("get_run", "list_steps")],
    more=[create("b", 9), update("b", [9], at=9), step("b", "pay", 9), drop("a")],
    fresh=(create("z", 1), ("get_run", ("z",))),
)


SCENARIOS = [
    Scenario("effects-save-over-none", EFFECTS, [checkpoint("a", 1)]),
    Scenario("effects-save-over-old", EFFECTS, [checkpoint("a", 2)], before=[checkpoint("a", 1), mark("a", 1)]),
    Scenario(
        "effects-save-over-damage", EFFECTS, [checkpoint("a", 2)], [Damage("save_checkpoint", (EFFECTS.damaged,))]
    ),
    Scenario("effects-mark-the-first", EFFECTS, [mark("a", 1)]),
    Scenario("effects-mark-the-next", EFFECTS, [mark("a", 2), mark("a", 3)], before=[mark("a", 1)]),
    Scenario("effects-mark-again", EFFECTS, [mark("a", 1), mark("a", 1)]),
    Scenario("effects-mark-again-on-another-handle", EFFECTS, [mark("a", 2), mark("a", 2, handle=1)], [mark("a", 1)]),
    Scenario("effects-mark-and-compact", EFFECTS, [mark("a", 4), mark("a", 5)], [mark("a", use) for use in (1, 2, 3)]),
    Scenario("effects-mark-after-another-handle", EFFECTS, [mark("a", 1), mark("a", 2, handle=1), mark("a", 3)]),
    Scenario("effects-mark-after-a-torn-line", EFFECTS, [mark("a", 1), after(Torn("", ()), mark("a", 2))], [LONG]),
    Scenario("effects-mark-after-an-unsynced-mark", EFFECTS, [mark("a", 1), after(mark("a", 2), mark("a", 3))], [LONG]),
    Scenario("effects-delete", EFFECTS, [forget("a")], before=[checkpoint("a", 1), mark("a", 1), mark("b", 1)]),
    Scenario("effects-delete-and-mark", EFFECTS, [forget("a"), mark("a", 2)], before=[checkpoint("a", 1)]),
    Scenario("paused-save-over-none", PAUSED, [paused("a", 1)]),
    Scenario("paused-save-over-old", PAUSED, [paused("a", 2)], before=[paused("a", 1)]),
    Scenario("paused-save-over-damage", PAUSED, [paused("a", 2)], before=[Damage("save", (PAUSED.damaged,))]),
    Scenario("paused-save-while-claimed", PAUSED, [paused("a", 2)], before=[paused("a", 1), claim("a")]),
    Scenario("paused-claim", PAUSED, [claim("a")], before=[paused("a", 1), paused("b", 1)]),
    Scenario(
        "paused-claim-over-an-older-claim", PAUSED, [claim("a")], before=[paused("a", 1), claim("a"), paused("a", 2)]
    ),
    Scenario("paused-complete-ones-own", PAUSED, [claim("a"), complete("a")], before=[paused("a", 1)]),
    Scenario(
        "paused-complete-too-late",
        PAUSED,
        [claim("a"), recover(handle=1), claim("a", handle=1), complete("a")],
        before=[paused("a", 1)],
    ),
    Scenario("paused-complete-after-a-restart", PAUSED, [complete("a")], before=[paused("a", 1), claim("a")]),
    Scenario(
        "paused-recover-several",
        PAUSED,
        [recover()],
        before=[paused("a", 1), claim("a"), paused("b", 1), claim("b"), paused("b", 2)],
    ),
    Scenario(
        "paused-recover-the-old-ones",
        PAUSED,
        [recover(60, at=100)],
        before=[paused("a", 1), claim("a", at=0), paused("b", 1), claim("b", at=90)],
    ),
    Scenario("paused-remove-paused", PAUSED, [remove("a")], before=[paused("a", 1), paused("b", 1)]),
    Scenario("paused-remove-claimed", PAUSED, [remove("a")], before=[paused("a", 1), claim("a")]),
    Scenario("paused-remove-both", PAUSED, [remove("a")], before=[paused("a", 1), claim("a"), paused("a", 2)]),
    Scenario("resume-save-in-new-folders", RESUME, [point("a", 1)], folder="new/folders"),
    Scenario("resume-save-over-old", RESUME, [point("a", 2)], before=[point("a", 1)]),
    Scenario("resume-save-over-damage", RESUME, [point("a", 2)], before=[Damage("save", (RESUME.damaged,))]),
    Scenario("resume-delete", RESUME, [delete("a")], before=[point("a", 1), point("b", 1)]),
    Scenario("snapshots-save-the-first", SNAPSHOTS, [snapshot("a", 0)]),
    Scenario("snapshots-save-the-next", SNAPSHOTS, [snapshot("a", 1)], before=[snapshot("a", 0)]),
    Scenario("snapshots-save-the-same-key", SNAPSHOTS, [snapshot("a", 0, 2)], before=[snapshot("a", 0, 1)]),
    Scenario(
        "snapshots-save-and-compact",
        SNAPSHOTS,
        [snapshot("a", 1, 2)],
        [snapshot("a", 0, number) for number in (1, 2, 3)],
    ),
    Scenario("snapshots-fork", SNAPSHOTS, [fork("a", 1)], before=[snapshot("a", 0), snapshot("a", 1)]),
    Scenario(
        "snapshots-fork-of-an-unsynced-one", SNAPSHOTS, [after(snapshot("a", 1), fork("a", 1))], [snapshot("a", 0)]
    ),
    Scenario("runs-create", RUNS, [create("a", 1)]),
    Scenario("runs-create-over-old", RUNS, [create("a", 2)], before=[create("a", 1), step("a", "pay", 1)]),
    Scenario("runs-update-context", RUNS, [update("a", {"k": []}, at=5)], before=[create("a", 1)]),
    Scenario("runs-add-a-step", RUNS, [step("a", "ship", 1)], before=[create("a", 1), step("a", "pay", 1)]),
    Scenario("runs-add-a-step-before-the-run", RUNS, [step("a", "pay", 1), create("a", 1)]),
    Scenario("runs-replace-a-step", RUNS, [step("a", "pay", 2)], [step("a", "pay", 1), step("a", "ship", 1)]),
    Scenario("runs-replace-a-step-and-compact", RUNS, [step("a", "pay", 5)], [step("a", "pay", n) for n in (1, 2, 3)]),
    Scenario("runs-delete", RUNS, [drop("a")], before=[create("a", 1), step("a", "pay", 1), create("b", 1)]),
]


def _pairs(contract: Contract, before: list[Call], calls: dict[str, Call]) -> list[tuple[Scenario, Call]]:
    return [
        (Scenario(f"{contract.name}-{first}-then-{second}", contract, [calls[first]], before), calls[second])
        for first, second in itertools.permutations(calls, 2)
    ]


PAIRS = [
    *_pairs(EFFECTS, [LONGER], {"short-line": mark("a", 1), "long-line": mark("a", 2, target="y" * 600)}),
    *_pairs(EFFECTS, [mark("a", 1)], {"mark": mark("a", 2), "delete": forget("a")}),
    *_pairs(
        PAUSED,
        [paused("a", 1), claim("a"), paused("a", 2)],
        {"save": paused("a", 3), "claim": claim("a"), "recover": recover(), "remove": remove("a")},
    ),
    *_pairs(RESUME, [point("a", 1)], {"save": point("a", 2), "delete": delete("a")}),
]
"""A call that dies, and another of the same run by the process that comes after."""
