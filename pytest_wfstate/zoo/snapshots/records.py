"""Snapshot stores that do not keep what they are given: values, ids, and who else looks at them."""

from __future__ import annotations

import json
import os
import re
from typing import Any

from pytest_wfstate.contracts.snapshots import CheckpointKey, Edits, Snapshot
from pytest_wfstate.errors import CorruptRecord
from pytest_wfstate.stores.file import FileSnapshotStore
from pytest_wfstate.stores.file._folder import Held
from pytest_wfstate.stores.file._names import stem
from pytest_wfstate.zoo._json import JsonSnapshots, without_nan
from pytest_wfstate.zoo.base import animal


@animal("snapshots", "values.falsy")
class LosesFalsyValues(FileSnapshotStore):
    """Values are saved if there is something in them. What was set to 0 or emptied is gone."""

    async def save(self, snapshot: Snapshot) -> None:
        values = {name: value for name, value in snapshot.values.items() if value}
        await super().save(snapshot.model_copy(update={"values": values}))


@animal("snapshots", "values.unicode", "ids.any-text", "ids.never-collide", "ids.any-workflow")
class DropsWhatIsNotAscii(JsonSnapshots):
    """Files are written in ASCII, and what is not ASCII is left out."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data.decode().encode("ascii", "ignore"))


@animal("snapshots", "values.large")
class CutsLongRecords(JsonSnapshots):
    """A file takes 65,536 bytes, as the column did from which the code was taken. Longer records cannot be read."""

    def write(self, held: Held, name: str, data: bytes) -> None:
        super().write(held, name, data[:65_536])


@animal("snapshots", "save.any-step", "list.stamps")
class CountsInFloats(JsonSnapshots):
    """Whole numbers go through floats, as in JavaScript. Above 2**53 they change, and two steps become one."""

    def parse(self, data: bytes) -> dict[str, Any]:
        return {str(_number(step)): one for step, one in json.loads(data, parse_int=_number).items()}


def _number(text: str) -> int:
    return int(float(text))


@animal("snapshots", "fork.edits-refused", "values.refused")
class NanBecomesNone(FileSnapshotStore):
    """Numbers that have no JSON are saved as null, so that nothing fails. The run goes on with a hole in its values."""

    async def save(self, snapshot: Snapshot) -> None:
        await super().save(snapshot.model_copy(update={"values": without_nan(snapshot.values)}))

    async def fork(self, source: CheckpointKey, edits: Edits = ()) -> str:
        return await super().fork(source, without_nan(dict(edits)))


@animal("snapshots", "ids.never-collide")
class SanitisesIds(JsonSnapshots):
    """In file names every character that is no letter or digit becomes an underscore. `a/b` and `a_b` are one run."""

    def name(self, *ids: str) -> str:
        return super().name(*(re.sub(r"[^\w-]", "_", one) for one in ids))


@animal("snapshots", "ids.never-collide")
class FoldsCase(JsonSnapshots):
    """Ids are lower-cased for the file name. `run` and `Run` share a file."""

    def name(self, *ids: str) -> str:
        return super().name(*(one.lower() for one in ids))


@animal("snapshots", "ids.never-collide")
class CutsNamesShort(JsonSnapshots):
    """File names are cut after 100 characters, lest they be too long. Long ids that begin alike share a file."""

    def name(self, *ids: str) -> str:
        return stem(*(one[:100] for one in ids)) + ".json"


@animal("snapshots", "ids.never-joined")
class JoinsIds(JsonSnapshots):
    """A file is named after workflow and run with a dash between them. Run `b-c` of `a` is run `c` of `a-b`."""

    def name(self, *ids: str) -> str:
        return super().name("-".join(ids))


@animal("snapshots", "ids.any-text", "ids.never-collide", "ids.stay-inside", "ids.any-workflow", "ids.never-joined")
class JoinsPaths(JsonSnapshots):
    """A file is named after run and workflow, as they are. An id with slashes leads elsewhere."""

    def name(self, *ids: str) -> str:
        return f"{ids[1]}.{ids[0]}.json"

    def write(self, held: Held, name: str, data: bytes) -> None:
        held.path(name).parent.mkdir(parents=True, exist_ok=True)
        super().write(held, name, data)


@animal("snapshots", "workflows.apart", "fork.workflow", "fork.missing")
class IgnoresTheWorkflow(JsonSnapshots):
    """Run ids are unique, so a file is named after the run alone. Two workflows that count their runs share them."""

    def name(self, *ids: str) -> str:
        return super().name(ids[1])


@animal("snapshots", "ids.refused", "ids.refused-everywhere")
class TakesAnyId(JsonSnapshots):
    """Ids are not looked at. What cannot be an id elsewhere is stored here, and cannot be moved to another store."""

    def check(self, *ids: str) -> None:
        pass


@animal("snapshots", "ids.refused-everywhere")
class ChecksOnlyTheRun(JsonSnapshots):
    """The id of a run is checked, that of its workflow is not. An empty one is a workflow like any other."""

    def check(self, *ids: str) -> None:
        super().check(ids[1])


@animal("snapshots", "aliasing.saved", "aliasing.loaded", "aliasing.forked")
class HandsOutWhatItKeeps(FileSnapshotStore):
    """What was saved is kept for the next load, and handed out as it is. Who changes it changes the store."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(directory)
        self._kept: dict[str, tuple[str, Snapshot]] = {}

    async def save(self, snapshot: Snapshot) -> None:
        await super().save(snapshot)
        self._kept[snapshot.key.to_json()] = (snapshot.to_json(), snapshot)

    async def load(self, key: CheckpointKey) -> Snapshot | None:
        found = await super().load(key)
        text, kept = self._kept.get(key.to_json(), ("", found))
        return kept if found and found.to_json() == text else found


@animal("snapshots", "handles.see-each-other", "random.calls", "fork.newest-source")
class NeverLooksAgain(JsonSnapshots):
    """A handle reads a run once, and knows it from then on. What other handles save it never sees, and writes over."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        super().__init__(home)
        self._known: dict[tuple[str, ...], str] = {}

    def read(self, *ids: str) -> dict[str, Any]:
        if ids not in self._known:
            self._known[ids] = json.dumps(super().read(*ids))
        return dict(json.loads(self._known[ids]))

    def put(self, snapshot: Snapshot) -> None:
        super().put(snapshot)
        ids = (snapshot.key.workflow_id, snapshot.key.run_id)
        run = {**self.read(*ids), str(snapshot.key.super_step): json.loads(snapshot.to_json())}
        self._known[ids] = json.dumps(run)


@animal("snapshots", "corrupt.is-loud")
class HidesCorruptFiles(JsonSnapshots):
    """A file that cannot be read is taken to be empty. The run starts from its beginning, and writes over the rest."""

    def parse(self, data: bytes) -> dict[str, Any]:
        try:
            return super().parse(data)
        except CorruptRecord:
            return {}


@animal("snapshots", "corrupt.stays-local")
class ReadsAllFiles(JsonSnapshots):
    """All runs are read to find one. One file that cannot be read takes all others with it."""

    def read(self, *ids: str) -> dict[str, Any]:
        for file in self.folder.home.glob("*.json"):
            self.parse(file.read_bytes())
        return super().read(*ids)
