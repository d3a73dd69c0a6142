"""A real local Ray cluster for the tests of a module, and nothing left on it after a test."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from ray.util import list_named_actors

from penstock.actors import start_local
from penstock.actors.names import NAMESPACE

#: Tests import their helper modules as `jobs...`; the cluster's processes do too.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

_PATIENCE = 10.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(_HERE) in item.path.parents:
            item.add_marker(pytest.mark.ray)


def penstock_actors() -> list[str]:
    """Names of all living actors of Penstock's namespace."""
    return sorted(a["name"] for a in list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A local cluster of four (nominal) CPUs that listens on loopback only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", _HERE, prepend=os.pathsep)
        start_local(num_cpus=4)
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what a test has left running, so that the next one begins on an empty cluster."""
    yield
    if "ray_cluster" not in request.fixturenames or not ray.is_initialized():
        return
    deadline = time.monotonic() + _PATIENCE
    while names := penstock_actors():
        for name in names:
            with contextlib.suppress(ValueError, ray.exceptions.RayActorError):
                ray.kill(ray.get_actor(name, namespace=NAMESPACE), no_restart=True)
        if time.monotonic() > deadline:
            pytest.fail(f"actors that can't be ended: {names}")
        time.sleep(0.1)
