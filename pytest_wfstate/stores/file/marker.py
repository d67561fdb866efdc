"""The marker of a folder: one file that says which contract the folder belongs to, and the version of its format.

A folder without one is accepted: another program may have written it, or a crash may have come first. The first save
into it adds the marker.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from pytest_wfstate.contracts.records import explain
from pytest_wfstate.errors import CorruptRecord, NewerSchema, WrongContract

NAME = ".wfstate"
FORMAT = 1


class Marker(BaseModel):
    """What the file says. Later releases may add to it, but not change the meaning of these."""

    contract: str
    format: int


def marker_of(contract: str) -> bytes:
    """Return the content of the marker in a folder of this contract."""
    return f"{Marker(contract=contract, format=FORMAT).model_dump_json()}\n".encode()


def is_torn(data: bytes, contract: str) -> bool:
    """Whether a power cut can have left this of the marker of `contract`, in a folder that is not fsynced.

    Then there is none. What could be the marker of another contract is not torn, and neither is one that lacks only
    its line break, as an editor may leave it.
    """
    whole = marker_of(contract)
    return whole.startswith(data.rstrip(b"\0")) and data not in (whole, whole.rstrip())


def check_marker(data: bytes, path: Path, contract: str) -> None:
    """Check that a folder with this marker can be used by a store of `contract`.

    Raises:
        NewerSchema: a later release has written the folder.
        WrongContract: it belongs to a store of another contract.
        CorruptRecord: the marker cannot be read.

    """
    try:
        marker = Marker.model_validate_json(data)
    except ValidationError as error:
        raise CorruptRecord(path, f"it should say what the folder holds: {explain(error)}") from error
    if marker.format > FORMAT:
        raise NewerSchema(
            f"the folder {path.parent} was written in format {marker.format} of a later release; this one knows format "
            f"{FORMAT}. Nothing was read or changed. Upgrade pytest-wfstate, or use another folder."
        )
    if marker.contract != contract:
        raise WrongContract(
            f"the folder {path.parent} holds a store of the contract {marker.contract!r}, not {contract!r}. "
            "Nothing was read or changed. Give each store a folder of its own."
        )
