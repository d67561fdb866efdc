"""A pytest run that does not use the plugin pays nothing for it."""

from __future__ import annotations

import json

import pytest

from tests.plugin.conftest import NO_PLUGINS_OF_DEPENDENCIES

LOADED = """
import json
import sys

print(json.dumps(sorted(sys.modules)))
"""

SESSION = f"""
import pytest
assert pytest.main({{options!r}}) == 0
{LOADED}
"""

LIGHT = (
    "errors faults faults.bounds labs labs.options plugin report report.failures report.terminal stores stores.backends"
)
LIGHT_MODULES = ["pytest_wfstate", *(f"pytest_wfstate.{name}" for name in LIGHT.split())]


def loaded(pytester: pytest.Pytester, script: str, *packages: str) -> list[str]:
    """Run `script`, and return the modules of `packages` that it has loaded at its end."""
    result = pytester.runpython(pytester.makepyfile(script=script))
    assert result.ret == 0
    modules: list[str] = json.loads(result.outlines[-1])
    return [module for module in modules if module.partition(".")[0] in packages]


def test_a_session_that_does_not_use_it_loads_only_light_modules(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_plain="def test_it(tmp_path): pass")
    script = SESSION.format(options=["test_plain.py"])
    assert loaded(pytester, script, "pytest_wfstate", "pydantic", "pydantic_core", "freezegun") == LIGHT_MODULES


def test_the_options_in_the_readme_keep_hypothesis_and_pyfakefs_out(
    pytester: pytest.Pytester, request: pytest.FixtureRequest
) -> None:
    readme = request.config.rootpath.joinpath("README.md").read_text()
    assert " ".join(NO_PLUGINS_OF_DEPENDENCIES) in readme
    pytester.makepyfile(test_plain="def test_it(tmp_path): pass")
    script = SESSION.format(options=["test_plain.py", *NO_PLUGINS_OF_DEPENDENCIES])
    assert loaded(pytester, script, "hypothesis", "_hypothesis_pytestplugin", "pyfakefs") == []


@pytest.mark.parametrize("module", ["pytest_wfstate", "pytest_wfstate.plugin"])
def test_importing_the_plugin_loads_nothing_heavy(pytester: pytest.Pytester, module: str) -> None:
    script = f"import {module}\n{LOADED}"
    heavy = ("pydantic", "pydantic_core", "hypothesis", "freezegun", "pyfakefs", "asyncio")
    assert loaded(pytester, script, *heavy) == []


def test_the_command_and_the_suites_load_nothing_that_only_some_clauses_need(pytester: pytest.Pytester) -> None:
    script = f"import pytest_wfstate.cli.main\n{LOADED}"
    ours, *others = "pytest_wfstate", "hypothesis", "pyfakefs", "sqlalchemy", "redis", "psycopg"
    modules = loaded(pytester, script, ours, *others)
    assert [name for name in modules if not name.startswith(ours) or name.startswith("pytest_wfstate.zoo")] == []


def test_a_memory_store_loads_no_file_store_and_no_faults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_one="def test_it(paused_store): pass")
    script = SESSION.format(options=["test_one.py", "--wfstate-backends=memory"])
    modules = set(loaded(pytester, script, "pytest_wfstate", "freezegun")) - set(LIGHT_MODULES)
    assert "pytest_wfstate.stores.memory" in modules
    unwanted = ("pytest_wfstate.stores.file", "pytest_wfstate.faults", "freezegun")
    assert [module for module in modules if module.startswith(unwanted)] == []
