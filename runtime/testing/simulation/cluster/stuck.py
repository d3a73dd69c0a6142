"""What a job that stands still waits for, task by task."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.runtime.graph.execution_graph import ExecutionGraph, build_execution_graph
from penstock.runtime.testing.simulation.cluster.control_plane import ControlPlane
from penstock.runtime.testing.simulation.cluster.running_task import RunningTask
from penstock.runtime.testing.simulation.world.world import World


def describe_standstill(world: World, control: ControlPlane) -> str:
    """Everything that somebody waits for."""
    graph = build_execution_graph(control.masters.last.scheduler.graph)
    status = control.masters.last.scheduler.statistics()
    waiting = ", ".join(f"{kind} {n}" for kind, n in world.agenda.waiting().items()) or "nothing"
    lines = [
        f"the job is {status.state.value} in attempt {status.attempt}; on the agenda: {waiting}; "
        f"checkpoints in progress: {control.running_checkpoints}"
    ]
    lines += [
        f"  checkpoint {record.checkpoint_id}: {record.status.value}, {record.acknowledged} of "
        f"{record.subtasks} acknowledged {record.detail}"
        for record in status.checkpoint_history[-3:]
    ]
    for subtask in graph.subtasks:
        process = control.processes.get(subtask.id)
        task = None if process is None else process.task
        if process is None or task is None or not process.is_alive:
            lines.append(f"  {subtask.id}: no process")
        elif task.state.is_open:
            lines.append(f"  {subtask.id}: {task.state.value}, {'; '.join(_waits(task, graph))}")
    return "\n".join(lines)


def _waits(task: RunningTask, graph: ExecutionGraph) -> Iterator[str]:
    subtask = task.subtask
    yield subtask.phase.value
    wake_at = task.wake_at
    yield "no timer" if wake_at is None else f"wakes at {wake_at:.5f} s"
    network = subtask._parts.network
    if network is not None:
        statistics = network.gate.statistics()
        for channel in statistics.gate.channels:
            if channel.index not in statistics.gate.finished:
                blocked = ", blocked" if channel.index in statistics.gate.blocked else ""
                yield (
                    f"input {channel.index} from {channel.sender}: {channel.queued} queued, "
                    f"{channel.early} early, {channel.consumed} consumed{blocked}"
                )
        yield f"barriers: {statistics.barriers}"
    for spec in graph.subtask(task.id).outputs:
        for out in spec.channels:
            outstanding = task.network.outstanding(out)
            if outstanding:
                yield f"waits for {outstanding} credits of {out.receiver} (channel {out.channel})"
