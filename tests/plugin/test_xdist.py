"""The store fixtures under pytest-xdist."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import WITH_XDIST


def test_stores_work_under_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from pytest_wfstate import samples

        @pytest.mark.parametrize("time", range(4))
        def test_it(paused_store, time):
            assert paused_store.list() == []
            paused_store.save(samples.paused("run-1"))
            assert paused_store.claim("run-1") is not None
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", *WITH_XDIST)
    result.assert_outcomes(passed=8)


def test_a_wrong_option_is_reported_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(paused_store): pass")
    result = pytester.runpytest_subprocess("-n", "2", "--wfstate-backends=redish", *WITH_XDIST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.stderr.str().count("unknown backend 'redish'") == 1
