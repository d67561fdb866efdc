"""`wfstate check` of a store in PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import inspect

from pytest_wfstate.cli.main import main
from tests.unit.stores.sql.places import Place


def test_a_store_in_postgres_is_checked_and_leaves_no_table(
    on_postgres: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = on_postgres.engine()
    before = inspect(engine).get_table_names()
    assert main(["check", f"paused.postgres:{on_postgres.url}", "-k", "paused.claim"]) == 0
    name, core = capsys.readouterr().out.splitlines()[1].split()[:2]
    assert name.startswith("paused.postgres:postgresql://")
    assert core == "2/2"
    assert inspect(engine).get_table_names() == before
    engine.dispose()
