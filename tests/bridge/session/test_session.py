"""Arguments of a Spark session that are refused before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from penstock import ConfigurationError, DeploymentError
from penstock.bridge.session import security, session
from penstock.bridge.session.spark_options import spark_options
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


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (ConfigurationError("a wrong setting"), ConfigurationError),
        (RuntimeError("no luck"), DeploymentError),
    ],
)
def test_a_start_that_fails_or_is_interrupted_stops_raydp_and_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, reported: type[BaseException]
) -> None:
    raydp = pytest.importorskip("raydp")
    stopped = []

    def init_spark(*arguments: object, **settings: object) -> None:
        assert list(tmp_path.rglob("credentials")), "the session's secret is written"
        raise error

    def no_other_node(*call: object) -> Iterator[Any]:
        return iter(())

    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    monkeypatch.setattr(security, "_failures_elsewhere", no_other_node)
    monkeypatch.setattr(raydp, "init_spark", init_spark)
    monkeypatch.setattr(raydp, "stop_spark", lambda: stopped.append(True))
    options = spark_options({"spark.local.dir": str(tmp_path)})
    with pytest.raises(reported):
        session._start(session._Settings("interrupted", 1, 1, "1g", options), False, 60.0)
    assert stopped == [True]
    assert not list(tmp_path.iterdir())
