"""A real local Ray cluster for the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import ray

from penstock.actors import start_local

#: Tests import their helper modules as `jobs...`; the cluster's processes do too.
_HERE = str(Path(__file__).parent)
#: The jobs whose snapshots are kept run here, too.
_KEPT = str(Path(__file__).parents[1] / "compatibility")
for _folder in (_KEPT, _HERE):
    if _folder not in sys.path:
        sys.path.insert(0, _folder)


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if Path(_HERE) in item.path.parents:
            item.add_marker(pytest.mark.ray)
    # The shared cluster ends before a test that has a cluster of its own: here, such tests come first.
    here = [index for index, item in enumerate(items) if Path(_HERE) in item.path.parents]
    ordered = sorted((items[index] for index in here), key=lambda item: "ray_cluster" in item.fixturenames)
    for index, item in zip(here, ordered, strict=True):
        items[index] = item


@pytest.fixture(scope="module")
def ray_cluster() -> None:
    """A local cluster of four (nominal) CPUs that listens on loopback only.

    Modules share it, because a node takes seconds to start. It ends before the first test that does not use
    it. See `tests/conftest.py`, which also ends what a test has left on it.
    """
    if not ray.is_initialized():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join((_HERE, _KEPT)), prepend=os.pathsep)
            start_local(num_cpus=4)
