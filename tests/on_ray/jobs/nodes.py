"""Three Ray nodes on one machine, which die, are cut off and come back.

Each node has a loopback address of its own, so Ray takes it for a host. Nodes share the file system and the
network: a node here is a raylet and the processes that it has started. A node whose raylet is frozen is dead
for the cluster after some seconds, while its subtasks go on. They reach the storage and each other all the
same, so they are worse zombies than those of a host without a network.

The head has no CPUs: what asks for one runs on a worker node.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
import ray
from jobs.driving import LONG_PATIENCE, PATIENCE, eventually, wait_until
from jobs.oracle import assert_exactly_once
from jobs.words import add, as_update, environment, lines, with_one, word_of
from lean_nodes import start_only_what_jobs_need
from ray._private.node import Node
from ray._private.parameter import RayParams
from ray._private.ray_constants import PROCESS_TYPE_RAYLET

from penstock import FileSink, JobStatus, StreamEnvironment
from penstock.actors.client.cluster import _as_single_machine, start_local
from penstock.cluster import JobReport, RayJobHandle
from penstock.connectors import Source

#: A raylet that is gone refuses three checks within three seconds. One that is silent is dead after half a
#: minute: a machine that is busy with other tests loses no living node.
HEALTH_CHECKS: Final = {
    "health_check_initial_delay_ms": 1_000,
    "health_check_period_ms": 1_000,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 3,
}
#: Of a worker node: one node alone has room for a job of two subtasks that ask for one.
CPUS: Final = 2


@dataclass
class WorkerNode:
    """A worker node of this machine.

    Attributes:
        address: Its own loopback address.
        node: Its processes, as Ray's Python side has started them.
    """

    address: str
    node: Node
    node_id: str

    def __post_init__(self) -> None:
        [started] = self.node.all_processes[PROCESS_TYPE_RAYLET]
        self._raylet: subprocess.Popen[bytes] = started.process

    @property
    def raylet_pid(self) -> int:
        """Process id of the raylet, as it was started."""
        return self._raylet.pid

    def kill(self) -> None:
        """SIGKILL the raylet and everything on the node, as when its power goes; reaps the raylet."""
        raylet = psutil.Process(self._raylet.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.end()

    def freeze(self) -> None:
        """Stop the raylet alone: the cluster hears nothing of the node, and its subtasks go on."""
        self._raylet.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let the raylet go on, if it lives."""
        self._raylet.send_signal(signal.SIGCONT)

    def has_left(self) -> bool:
        """Whether the raylet has ended. It is reaped here: its workers end only then."""
        return self._raylet.poll() is not None

    def end(self) -> None:
        """End all processes of the node, also frozen ones."""
        self.thaw()
        self.node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)

    def is_alive(self) -> bool:
        """Whether the cluster takes it for alive."""
        return self.node_id in living_nodes()


@dataclass
class Nodes:
    """The worker nodes beside the head, which is the node of this process."""

    workers: list[WorkerNode] = field(default_factory=list)
    _addresses: int = 1

    def add(self) -> WorkerNode:
        """Start a worker node and wait until the cluster has it; each gets a new address."""
        self._addresses += 1
        address = f"127.0.0.{self._addresses}"
        with _as_single_machine():
            head: Any = ray._private.worker._global_node
            params = RayParams(
                gcs_address=ray.get_runtime_context().gcs_address,
                session_name=head.session_name,
                temp_dir=head.get_temp_dir_path(),
                node_ip_address=address,
                num_cpus=CPUS,
                object_store_memory=100 << 20,
                include_log_monitor=False,
            )
            node = Node(params, head=False, shutdown_at_exit=True, spawn_reaper=True)
        eventually(f"the node {address}", lambda: _id_of(address) is not None, LONG_PATIENCE)
        node_id = _id_of(address)
        assert node_id is not None
        self.workers.append(WorkerNode(address, node, node_id))
        return self.workers[-1]

    def refill(self) -> None:
        """Add worker nodes until two are alive."""
        while sum(worker.is_alive() for worker in self.workers) < 2:
            self.add()

    def hosting(self, report: JobReport, vertex: str) -> WorkerNode:
        """The worker node with the first subtask of a vertex that asks for a CPU."""
        on = next(p.node_id for p in report.processes if p.subtask.vertex == vertex)
        return next(worker for worker in self.workers if worker.node_id == on)

    def end(self) -> None:
        """End all processes of all worker nodes, also frozen ones."""
        for worker in self.workers:
            worker.end()


@contextmanager
def three_nodes(**system: Any) -> Iterator[Nodes]:
    """A cluster of a head without CPUs and two worker nodes, for this process alone."""
    with pytest.MonkeyPatch.context() as patch:
        # Processes of all nodes find these helper modules.
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        start_only_what_jobs_need(patch)
        start_local(num_cpus=0, object_store_memory=100 << 20, _system_config=HEALTH_CHECKS | system)
        nodes = Nodes()
        try:
            nodes.add()
            nodes.add()
            yield nodes
        finally:
            ray.shutdown()
            nodes.end()


def living_nodes() -> set[str]:
    """Ids of the nodes that the cluster takes for alive."""
    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def _id_of(address: str) -> str | None:
    found = [n["NodeID"] for n in ray.nodes() if n["Alive"] and n["NodeManagerAddress"] == address]
    return found[0] if found else None


def counted_on_workers(folder: Path, source: Source[str], **options: Any) -> StreamEnvironment:
    """The word count of the other tests; its counting subtasks ask for a CPU each."""
    env = environment(folder, **options)
    pairs = env.from_source("lines", source).flat_map(str.split).map(with_one).key_by(word_of)
    counts = pairs.reduce("count", add, num_cpus=1).map(as_update)
    counts.sink("updates", FileSink.json(folder / "out"))
    return env


def pids_on(report: JobReport, node_id: str) -> Sequence[int]:
    """The processes of a job on a node."""
    named = [*report.processes, *([] if report.master is None else [report.master])]
    return [process.pid for process in named if process.node_id == node_id]


def lives(pid: int) -> bool:
    """Whether a process runs; an unreaped one does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def running_elsewhere(job: RayJobHandle, node_id: str, attempt: int) -> JobReport:
    """Wait until a later attempt runs with nothing on this node."""

    def elsewhere(report: JobReport) -> bool:
        placed = report.processes != () and pids_on(report, node_id) == []
        return placed and report.statistics.attempt > attempt and report.status is JobStatus.RUNNING

    return wait_until(job, "an attempt elsewhere", elsewhere)


def finish_exactly(job: RayJobHandle, folder: Path, count: int, patience: float = PATIENCE) -> None:
    """Wait for the end, and compare the output with an independent count."""
    assert job.wait(patience).status is JobStatus.FINISHED
    assert_exactly_once(folder / "out", lines(count))


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may have gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
