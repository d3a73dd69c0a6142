"""Arguments of a Spark session that are refused before anything starts."""

from __future__ import annotations

import sys

import pytest

from penstock import ConfigurationError
from penstock.bridge.session import session
from penstock.spark import spark_session


@pytest.mark.parametrize("wrong", [{"executors": 0}, {"cores": -1}, {"app_name": " "}, {"executors": True}])
def test_arguments_that_can_not_be_meant_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        spark_session(**wrong)  # type: ignore[arg-type]


def test_a_missing_raydp_is_named_before_ray_or_java_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "raydp", None)
    monkeypatch.setenv("JAVA_HOME", "/not/there")
    monkeypatch.setattr(session, "connect", lambda: pytest.fail("Ray was started"))
    with pytest.raises(ConfigurationError, match=r"needs RayDP and PySpark.*pip install 'penstock\[spark\]'"):
        spark_session()
