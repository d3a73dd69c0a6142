"""Runs examples the way a user does, as programs of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: The examples themselves, and `head_node` beside this file.
for folder in (str(EXAMPLES), str(Path(__file__).parent)):
    if folder not in sys.path:
        sys.path.append(folder)

from head_node import Cluster, head_node  # noqa: E402 (the path comes first)
from program_here import run_here  # noqa: E402

#: Seconds that an example may take, the start of a local cluster included.
_PATIENCE = 600


@pytest.fixture
def ray_folder() -> Iterator[str]:
    """A folder where Ray finds no other cluster.

    Sockets need a short path, so it is not in pytest's folder.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head node on loopback; ended afterwards, and only it."""
    with head_node() as started:
        yield started


RunExample = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run_example_as_program(tmp_path: Path, ray_environment: dict[str, str]) -> RunExample:
    """Runs an example in the test's own folder, on a cluster that runs already, as `RAY_ADDRESS` names it.

    It gives how the example ended, with all that it said in `stdout`.
    """
    return _runs_in(tmp_path, ray_environment)


@pytest.fixture
def run_example(
    request: pytest.FixtureRequest, tmp_path: Path, ray_environment: dict[str, str]
) -> RunExample:
    """The same in the process of the test; with `--run-long` as a program of its own."""
    if request.config.getoption("--run-long"):
        return _runs_in(tmp_path, ray_environment)
    return lambda program, *arguments: run_here(EXAMPLES / program, *arguments, folder=tmp_path)


@pytest.fixture
def environment_alone(ray_folder: str) -> dict[str, str]:
    """The environment of a program that finds no cluster, so that it starts its own."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return environment | {"RAY_TMPDIR": ray_folder}


@pytest.fixture
def run_example_alone(tmp_path: Path, environment_alone: dict[str, str]) -> RunExample:
    """Like `run_example`, but there is no cluster before, so that the example starts its own."""
    return _runs_in(tmp_path, environment_alone)


def _runs_in(folder: Path, environment: Mapping[str, str]) -> RunExample:
    def run(program: str, *arguments: str | Path | float) -> subprocess.CompletedProcess[str]:
        process = subprocess.Popen(
            [sys.executable, EXAMPLES / program, *map(str, arguments)],
            cwd=folder,
            env={**environment, "PYTHONFAULTHANDLER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it prints where its threads are
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            pytest.fail(f"{program} still ran after {_PATIENCE} s; it said:\n{said}")
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    return run
