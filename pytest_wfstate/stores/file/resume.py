"""The resume contract, in a folder: one file per run, replaced as a whole."""

from __future__ import annotations

from pytest_wfstate.contracts.ids import check_id
from pytest_wfstate.contracts.resume import ResumePoint, ResumeStore
from pytest_wfstate.stores.file.base import FileStore, parse
from pytest_wfstate.stores.file.names import stem


class FileResumeStore(FileStore, ResumeStore):
    """Keeps the resume point of run `run-1` in `run-1.json`."""

    def save(self, point: ResumePoint) -> None:
        point = ResumePoint.checked(point)
        name = _name(point.run_id)
        with self._folder.exclusive() as held:
            held.replace(name, point.to_json(indent=2).encode())

    def load(self, run_id: str) -> ResumePoint | None:
        name = _name(run_id)
        data = self._folder.read(name)
        return None if data is None else parse(ResumePoint, data, self._folder.path(name), run_id)

    def delete(self, run_id: str) -> None:
        name = _name(run_id)
        if self._folder.exists():
            with self._folder.exclusive() as held:
                held.unlink(name + ".tmp", name)
                held.sync()


def _name(run_id: str) -> str:
    return stem(check_id("run id", run_id)) + ".json"
