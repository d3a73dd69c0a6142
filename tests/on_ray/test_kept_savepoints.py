"""Real jobs go on from the savepoints that older versions have left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from jobs.driving import finish
from saved_jobs import committed, in_json
from saved_ray_job import cut_of, environment, expected_rows

from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

DATA = Path(__file__).parents[1] / "compatibility" / "data"
VERSIONS = sorted(path.parent.name for path in DATA.glob("*/ray-stopped"))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_goes_on_from_the_savepoint_that_an_older_version_was_stopped_with(
    version: str, tmp_path: Path
) -> None:
    """With splits that no reader has, keyed state at another parallelism, and the state of a master hook."""
    folder = tmp_path / "kept"
    shutil.copytree(DATA / version / "ray-stopped", folder)
    (folder / "go").touch()
    (savepoint,) = (folder / "checkpoints").glob("*/savepoint-22-3")

    job = environment(folder, parallelism=1).submit(restore_from=str(savepoint))

    assert isinstance(job, RayJobHandle)
    assert finish(job).statistics.restarts == 0
    assert (folder / "restored").read_text() == f"22: {cut_of(22)!r}"
    assert committed(folder / "out") == in_json(expected_rows())
