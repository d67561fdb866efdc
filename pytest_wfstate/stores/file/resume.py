"""The resume contract, in a folder: one file per run, replaced as a whole."""

from __future__ import annotations

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.stores.file.base import FileStore, load
from pytest_wfstate.stores.file.names import stem
from pytest_wfstate.stores.file.seeds import SeedNames, raw_stem


class FileResumeStore(FileStore, ResumeStore):
    """Keeps the resume point of run `run-1` in `run-1.json`."""

    contract = "resume"
    seeds = SeedNames(raw_stem, ".json")

    def save(self, point: ResumePoint) -> None:
        point = ResumePoint.checked(point)
        name = _name(point.run_id)
        with self._folder.exclusive(point.run_id) as held:
            held.replace(name, point.to_json(indent=2).encode())

    def load(self, run_id: str) -> ResumePoint | None:
        return load(self._folder, ResumePoint, check_id("run id", run_id), ".json")

    def delete(self, run_id: str) -> None:
        name = _name(run_id)
        if self._folder.exists():
            with self._folder.exclusive(run_id) as held:
                held.unlink(name + ".tmp", name)
                held.sync()


def _name(run_id: str) -> str:
    return stem(check_id("run id", run_id)) + ".json"
