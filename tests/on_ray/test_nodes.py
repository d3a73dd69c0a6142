"""Nodes of a cluster die, are cut off while their subtasks go on, and come back: the result stays exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from jobs.block_task import block_task, ids
from jobs.driving import after_checkpoints, eventually, submit
from jobs.nodes import (
    Nodes,
    counted_on_workers,
    finish_exactly,
    lives,
    pids_on,
    running_elsewhere,
    three_nodes,
)
from jobs.oracle import hidden_files
from jobs.words import NEVER, paced_lines
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock import JobStatus
from penstock.actors.shared.job_report import SubtaskProcess
from penstock.actors.shared.node_processes import own_node
from penstock.actors.web import inspections
from penstock.runtime.errors import DeploymentError
from penstock.spark import SparkResults

COUNT, RATE = 3_000, 3_000.0


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with three_nodes() as started:
        yield started


@pytest.mark.long
def test_a_flame_graph_is_taken_on_the_node_of_its_subtask(
    tmp_path: Path, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by py-spy, where the system lets it look at other processes."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(counted_on_workers(tmp_path, source, parallelism=2))
    try:
        report = after_checkpoints(job, 1)
        process = next(each for each in report.processes if each.subtask.vertex == "count")
        assert process.node_id == nodes.hosting(report, "count").node_id != own_node()
        assert_flame_graph(process, monkeypatch)
    finally:
        job.cancel()
    eventually("the end of the job", lambda: job.status() is JobStatus.CANCELLED)


def assert_flame_graph(process: SubtaskProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        stacks = inspections.flame_graph(process, 1.0)["root"]
    except DeploymentError as error:
        assert "ptrace" in str(error)  # noqa: PT017
    else:
        assert stacks["value"] > 0

    def where(pid: int, seconds: float, kind: str, thread: str) -> tuple[list[str], str]:
        return [f"{own_node()};{pid} {seconds:.0f}"], ""

    with monkeypatch.context() as patch:
        patch.setattr(inspections, "take_stacks", where)
        (node,) = inspections.flame_graph(process, 2.0)["root"]["children"]
    assert (node["name"], node["children"][0]["name"]) == (process.node_id, str(process.pid))
    assert node["value"] == 2


def test_a_worker_node_that_dies_costs_nothing(tmp_path: Path, nodes: Nodes) -> None:
    """Its raylet dies with all that runs on it, which may be the JobMaster. Committed results stay."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(counted_on_workers(tmp_path, source, parallelism=2))
    before = after_checkpoints(job, 2)
    victim = nodes.hosting(before, "count")
    with results_held_elsewhere(victim.node_id) as results:
        there = NodeAffinitySchedulingStrategy(victim.node_id, soft=False)
        task = block_task(results, attempt=1, scheduling_strategy=there)
        ray.get(task.commit.remote(ray.get(task.write.remote(0, 300, 1_000))))
        victim.kill()

        running_elsewhere(job, victim.node_id, before.statistics.attempt)
        assert ids(results) == list(range(300))
    (tmp_path / "go").touch()

    finish_exactly(job, tmp_path, COUNT)
    assert hidden_files(tmp_path / "out") == []
    assert not victim.is_alive()


def results_held_elsewhere(node_id: str) -> SparkResults:
    """Results whose holder is not on this node; Ray chooses its node at random."""
    while True:
        results = SparkResults()
        if ray.get(results._holder.serve.remote("job", "out", None)) != node_id:
            return results
        results.unpersist()


@pytest.mark.long
def test_subtasks_of_a_node_that_is_cut_off_commit_nothing_and_leave(tmp_path: Path, nodes: Nodes) -> None:
    """The raylet is frozen: the cluster takes the node for dead, and its subtasks go on for a while."""
    nodes.refill()
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(counted_on_workers(tmp_path, source, parallelism=2))
    before = after_checkpoints(job, 2)
    cut_off = nodes.hosting(before, "count")
    zombies = pids_on(before, cut_off.node_id)
    cut_off.freeze()
    try:
        after = running_elsewhere(job, cut_off.node_id, before.statistics.attempt)
        assert zombies != []
        after_checkpoints(job, after.statistics.completed_checkpoints + 2)
        assert not cut_off.is_alive()
    finally:
        cut_off.thaw()
    eventually("the end of the node that was cut off", cut_off.has_left)
    eventually("the end of what was cut off", lambda: not any(map(lives, zombies)))
    (tmp_path / "go").touch()

    finish_exactly(job, tmp_path, COUNT)
    assert hidden_files(tmp_path / "out") == []


@pytest.mark.long
def test_a_node_that_comes_back_serves_the_job_again(tmp_path: Path, nodes: Nodes) -> None:
    """Both worker nodes die, one after the other; a new one stands in for each."""
    nodes.refill()
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(counted_on_workers(tmp_path, source, parallelism=2))
    report = after_checkpoints(job, 2)
    for _ in range(2):
        victim = nodes.hosting(report, "count")
        victim.kill()
        nodes.add()
        running_elsewhere(job, victim.node_id, report.statistics.attempt)
        report = after_checkpoints(job, report.statistics.completed_checkpoints + 2)
    (tmp_path / "go").touch()

    finish_exactly(job, tmp_path, COUNT)
    assert hidden_files(tmp_path / "out") == []
