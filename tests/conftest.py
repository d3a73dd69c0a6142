"""Options for the whole test run, and nothing left on a cluster after a test."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

#: Neither the start of a Ray node nor a generated test fails because the machine is busy with something else.
#: Ray waits for half a minute by default. Programs that get none of these settings need this one.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")
#: Ray looks for new log files ten times a second, and in the logs of hundreds of processes that takes time.
os.environ.setdefault("RAY_LOG_MONITOR_MANY_FILES_THRESHOLD", "1")
#: Ray gives its workers a low priority: what else keeps the machine busy would leave them next to nothing.
os.environ.setdefault("RAY_worker_niceness", "0")
#: A node's agent measures every process of it twelve times a minute, for a dashboard that no test opens.
os.environ.setdefault("RAY_REPORTER_UPDATE_INTERVAL_MS", "60000")
#: With the thresholds of Python the cycle collector took a quarter of the time of a simulated job.
gc.set_threshold(50_000, 10, 10)


#: How deep tests go is beside this file (`deep`), where all import it.
_HERE: Final = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.append(_HERE)

from deep import DEEP  # noqa: E402 (the path comes first)
from serving import apache_kafka, browser, iceberg_rest, prometheus, table_jars  # noqa: E402

settings.register_profile(
    "busy machine", deadline=None, max_examples=40 * DEEP, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")

#: Programs that some tests need: the marker of these, the program, and how a run without it names them.
_PROGRAMS: Final = (
    ("browser", browser.program(), "of the page", "there is no Chromium here; `make browser` installs it"),
    (
        "prometheus",
        prometheus.program() and prometheus.program("promtool"),
        "of metrics and alert rules",
        "there is no Prometheus here; `make prometheus` unpacks it in .venv",
    ),
    (
        "kafka",
        apache_kafka.program(),
        "with real Kafka brokers",
        "there is no Apache Kafka here; `make kafka` fetches it into .venv",
    ),
    (
        "table_jars",
        table_jars.program(),
        "of tables that Spark reads",
        "Spark can't read tables here; `make table-jars` fetches the jars into .venv",
    ),
    (
        "rest_catalog",
        iceberg_rest.program(),
        "with a REST catalog of Iceberg",
        "there is no such catalog here; `make table-jars` fetches it into .venv",
    ),
)

#: The only folders with tests on Ray or with Spark: `make test` collects no others for them.
_WITH_PROCESSES: Final = ("on_ray", "on_spark", "examples", "docs", "benchmarks")
#: The only folders with long simulations.
_WITH_SIMULATIONS: Final = tuple(
    f"{_HERE}{os.sep}{folder}{os.sep}"
    for folder in ("simulation", "pipelines", "properties", "examples", os.path.join("runtime", "testing"))
)
#: The longest of their files.
_LONGEST: Final = ("test_seeds.py", "test_pipelines.py")
#: What the tests of the shared cluster import: their helper modules, kept jobs, the benchmarks.
_ITS_MODULES: Final = tuple(
    str(Path(__file__).parent / folder)
    for folder in ("on_ray", "compatibility", "../benchmarks", "../examples", "../examples/nexmark", ".")
)
#: Fixtures that hold a cluster which tests share.
_CLUSTERS: Final = {"ray_cluster", "spark"}
#: Whether the cluster of `ray_cluster` runs.
_SHARED: Final = pytest.StashKey[bool]()
#: Seconds for the actors of a test to end.
_PATIENCE: Final = 30.0


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets programs in its background ignore Ctrl-C, and what they start, too. Some tests press it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-long", action="store_true", help="also run the tests marked 'long'")
    parser.addoption(
        "--screenshots", action="store_true", help="draw the pictures of the page in docs/ again"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what tests want to be seen with `record_property("shown", ...)`, wherever they ran."""
    for report in terminalreporter.stats.get("passed", ()):
        for name, text in getattr(report, "user_properties", ()):
            if name == "shown":
                terminalreporter.write_line(f"{report.nodeid.rpartition('::')[2]}:\n{text}")
    skipped = terminalreporter.stats.get("skipped", ())
    for marker, program, tests, reason in _PROGRAMS:
        left_out = [report for report in skipped if marker in getattr(report, "keywords", ())]
        if left_out and program is None:
            terminalreporter.write_line(f"{len(left_out)} tests {tests} were left out: {reason}", red=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_length)
    for item in items:
        if "simulation" in item.keywords and not str(item.path).startswith(_WITH_SIMULATIONS):
            raise pytest.UsageError(
                f"{item.nodeid} is a long simulation: move it to one of {_WITH_SIMULATIONS}, "
                "or `make test` won't run it"
            )
        processes = item.get_closest_marker("ray") or item.get_closest_marker("spark")
        if processes is not None and _folder(item) not in _WITH_PROCESSES:
            raise pytest.UsageError(
                f"{item.nodeid} needs Ray or Spark: move it to one of {_WITH_PROCESSES}, "
                "or `make test` won't run it"
            )
    _without_shared_cluster_first(items)
    for marker, program, _, reason in _PROGRAMS:
        for item in items if program is None else ():
            if marker in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))
    if config.getoption("--run-long"):
        return
    skip = pytest.mark.skip(reason="takes long: give --run-long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)


def _length(item: pytest.Item) -> int:
    """The few files that take longest come first: behind all others, one process would wait for the other."""
    if "simulation" not in item.keywords:
        return len(_LONGEST) + 1
    return _LONGEST.index(item.path.name) if item.path.name in _LONGEST else len(_LONGEST)


def _without_shared_cluster_first(items: list[pytest.Item]) -> None:
    """Files that do not use the shared cluster come first, and in the other files the tests that do not.

    Such a test ends the cluster. The next file starts it again, but not the next test of the same file. The
    fixture `ray_cluster` is set up once for each file.
    """
    on_ray = [index for index, item in enumerate(items) if item.get_closest_marker("ray") is not None]
    sharing = {items[index].path for index in on_ray if _shares_cluster(items[index])}
    files = {path: number for number, path in enumerate(dict.fromkeys(items[index].path for index in on_ray))}
    ordered = sorted(
        (items[index] for index in on_ray),
        key=lambda item: (item.path in sharing, files[item.path], _shares_cluster(item)),
    )
    for index, item in zip(on_ray, ordered, strict=True):
        items[index] = item


def _shares_cluster(item: pytest.Item) -> bool:
    return "ray_cluster" in getattr(item, "fixturenames", ())


def pytest_collection_finish() -> None:
    """Python's cycle collector never walks the modules and the thousands of tests."""
    gc.collect()
    gc.freeze()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """The cluster that modules share ends before a test that has no use for it."""
    if not _shares_cluster(item):
        _end_shared_cluster(item.session)
    else:
        item.session.stash[_SHARED] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    _end_shared_cluster(session)


def _end_shared_cluster(session: pytest.Session) -> None:
    if session.stash.get(_SHARED, False):
        import ray

        session.stash[_SHARED] = False
        ray.shutdown()


@pytest.fixture(scope="module")
def ray_cluster() -> None:
    """A local cluster of four (nominal) CPUs that listens on loopback only.

    It stays from module to module and from folder to folder, as a node takes seconds to start. It ends
    before the first test that does not use it.
    """
    import ray
    from lean_nodes import start_only_what_jobs_need

    from penstock.cluster import start_local

    if not ray.is_initialized():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join(_ITS_MODULES), prepend=os.pathsep)
            start_only_what_jobs_need(patch)
            start_local(num_cpus=4)


@pytest.fixture
def ray_environment(ray_cluster: None) -> dict[str, str]:
    """The environment of a program of its own that joins the shared cluster."""
    import ray

    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return mine | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what a test has left of Penstock's on a shared cluster; warm processes and a Spark session stay."""
    yield
    if _CLUSTERS.isdisjoint(request.fixturenames):
        return
    import ray

    from penstock.actors.shared.registry import find_actor

    deadline = time.monotonic() + _PATIENCE
    while ray.is_initialized() and (names := _penstock_actors()):
        for name in names:
            with contextlib.suppress(ValueError, ray.exceptions.RayActorError):
                ray.kill(find_actor(name), no_restart=True)
        if time.monotonic() > deadline:
            pytest.fail(f"actors that can't be ended: {names}")
        time.sleep(0.1)


def _penstock_actors() -> list[str]:
    from ray.util import list_named_actors

    from penstock.actors.shared.registry import (
        NAMESPACE,
        master_name,
        process_name,
        warm_masters,
        warm_processes,
    )

    warm = {process_name(process) for process in warm_processes()}
    warm |= {master_name(process) for process in warm_masters()}
    found = [a["name"] for a in list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE]
    return sorted(name for name in found if name not in warm)
