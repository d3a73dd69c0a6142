"""Blocks of results: dead subtasks take no committed block with them, and leave no other block behind."""

from __future__ import annotations

import re
from typing import Any

import pytest
import ray
from jobs.block_task import block_task, ids, makers
from jobs.driving import eventually
from ray._private.internal_api import memory_summary

from penstock.runtime.errors import LostOutputError
from penstock.spark import SparkResults

pytestmark = pytest.mark.usefixtures("ray_cluster")

ROWS = 1_500
#: Bytes of a row; all rows fill more than one block.
WIDTH = 16_000


def end(task: Any) -> None:
    ray.kill(task)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(task.start.remote())


def stored() -> int:
    """Number of objects in the object store."""
    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    found = re.search(r"(\d+) objects", summary)
    assert found is not None
    return int(found[1])


def test_blocks_are_those_of_the_commits_whatever_dies() -> None:
    with SparkResults() as results:
        before = stored()
        first = block_task(results, attempt=1)
        covered = ray.get(first.write.remote(0, ROWS, WIDTH))
        ray.get(first.write.remote(ROWS, ROWS, WIDTH))  # no checkpoint covers these rows
        assert stored() == before + 4, "each block is there once"
        end(first)
        assert ids(results) == [], "nothing is committed"

        second = block_task(results, attempt=2)
        for _ in range(2):
            ray.get(second.commit.remote(covered))
        assert ids(results) == list(range(ROWS)), "written by a process that has ended"
        assert makers(results) == {first._actor_id}, "a block was copied"
        eventually("the end of blocks without a checkpoint", lambda: stored() == before + 2)

        ray.get(second.commit.remote(ray.get(second.write.remote(ROWS, 10, WIDTH))))
        end(second)
        assert ids(results) == list(range(ROWS + 10))


def test_the_death_of_the_holder_is_an_error_that_says_what_is_lost() -> None:
    results = SparkResults()
    task = block_task(results, attempt=1)
    keys = ray.get(task.write.remote(0, 10, 10))
    results.unpersist()
    for lost in (task.write.remote(10, 10, 10), task.commit.remote(keys)):
        with pytest.raises(LostOutputError, match="has ended, so committed rows are lost"):
            ray.get(lost)
