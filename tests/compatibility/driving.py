"""Takes the snapshots that are kept as fixtures, and lets jobs start from them.

All that knows how jobs are run is here. It may follow the code; what is in the folders may not.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Final

from msgpack import unpackb
from saved_jobs import JOBS, Placed, config_of, environment

from penstock import JobConfig, StreamEnvironment
from penstock.runtime.checkpoint.channel_state_writer import read_channel_state
from penstock.runtime.checkpoint.recovery import OpenedSnapshot, open_snapshot
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.element_codec import BatchCodec, decode_element
from penstock.runtime.record.elements import Buffer
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot import metadata
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.snapshot.storage import MemoryStorage

#: Programs of this folder are started by themselves, too.
if (_TESTS := str(Path(__file__).parents[1])) not in sys.path:
    sys.path.append(_TESTS)

from simulated_jobs.scripted_job import ScriptedJob

#: Fixtures of each version.
DATA: Final = Path(__file__).parent / "data"

#: Folder of a savepoint within a fixture.
SAVEPOINT: Final = "savepoint"

#: A larger state has a file of its own.
_LARGEST_INLINE: Final = 80


def take(name: str, folder: Path) -> None:
    """Run a job for a while in a new folder and leave it there as a crash would.

    All subtasks have acknowledged the last checkpoint, and it is complete; no sink knows, so its files are
    not committed.
    """
    job = JOBS[name]
    if job.write_input is not None:
        (folder / "in").mkdir(parents=True)
        job.write_input(folder / "in")
    storage = open_location(str(folder / "checkpoints"), create=True)
    graph = build_execution_graph(environment(name, Placed(folder)).build())
    running = ScriptedJob(graph, config_of(job), storage, job_id=name, open_location=open_location)
    inline, metadata.INLINE_LIMIT = metadata.INLINE_LIMIT, _LARGEST_INLINE  # type: ignore[misc]
    try:
        before, between = job.moves
        running.run(before)
        running.complete_checkpoint()
        running.run(between)
        if job.savepoint:
            saved = running.take_savepoint(str(folder / "saved"))
            Path(saved).rename(folder / SAVEPOINT)
            shutil.rmtree(folder / "saved")
            shutil.rmtree(folder / "checkpoints")
        else:
            _complete_checkpoint(running)
    finally:
        metadata.INLINE_LIMIT = inline  # type: ignore[misc]


def _complete_checkpoint(running: ScriptedJob) -> None:
    checkpoint_id = running.trigger_checkpoint()
    running.until(
        lambda: running.newest is not None and running.newest.checkpoint_id == checkpoint_id,
        f"the end of checkpoint {checkpoint_id}",
    )


def copy_of(fixture: Path, folder: Path) -> Path:
    """A copy of a fixture, in which a job may commit and delete."""
    return Path(shutil.copytree(fixture, folder / fixture.name))


def place_of(folder: Path, snapshot: Path | None = None) -> Path:
    """The newest snapshot of the job in a folder."""
    if snapshot is not None:
        return snapshot
    snapshot = folder / SAVEPOINT
    return snapshot if snapshot.is_dir() else folder / "checkpoints" / folder.name


def opened_at(folder: Path, snapshot: Path | None = None) -> OpenedSnapshot:
    """The newest snapshot of the job in a folder, and the storage that its files are in."""
    return open_snapshot(str(place_of(folder, snapshot)), open_location)


def finish_from(folder: Path, parallelism: int | None = None, snapshot: Path | None = None) -> None:
    """Start the job of a folder from its snapshot, kill it once, and let it come to its end.

    Args:
        folder: A copy of a fixture.
        parallelism: Of the job; by default as it was.
        snapshot: Where the snapshot is; by default in the folder.
    """
    name = folder.name
    options = {} if parallelism is None else {"parallelism": parallelism}
    env = environment(name, Placed(folder), **options)
    finish_job(env, config_of(JOBS[name]), str(place_of(folder, snapshot)))


def finish_job(env: StreamEnvironment, config: JobConfig, url: str) -> None:
    """Start a job from the snapshot at a URL, kill it once, and let it come to its end."""
    restored = ScriptedJob(
        build_execution_graph(env.build()),
        config,
        MemoryStorage(),
        1,
        job_id=f"{env.name}-again",
        restore_from=url,
        open_location=open_location,
    )
    restored.run(50)
    restored.crash()
    restored.finish()


def list_state(opened: OpenedSnapshot, operator_id: str, name: str) -> list[Any]:
    """The values of a list state in all subtasks, decoded without pickle."""
    codec = ValueCodec(allow_pickle=False)
    return [
        codec.loads(value)
        for subtask in opened.checkpoint.operators[operator_id].subtasks.values()
        for handle in subtask.operator
        if handle.name == name
        for value in unpackb(read_state(opened.storage, handle.state))
    ]


def coordinator_state(opened: OpenedSnapshot, operator_id: str) -> Any:
    """The state of an operator's coordinator, decoded without pickle."""
    handle = opened.checkpoint.operators[operator_id].coordinator
    assert handle is not None
    codec = ValueCodec(allow_pickle=False)
    state, _ = codec.loads(read_state(opened.storage, handle))
    return codec.loads(state)


def in_flight(opened: OpenedSnapshot) -> list[Any]:
    """The elements that were on their way, buffers decoded to batches."""
    codec = BatchCodec()
    found: list[Any] = []
    for operator in opened.checkpoint.operators.values():
        for subtask in operator.subtasks.values():
            if subtask.channels is not None:
                state, _ = read_channel_state(opened.storage, subtask.channels)
                for elements in (*state.inputs.values(), *state.outputs.values()):
                    found += map(decode_element, elements)
    return [codec.decode(each) if isinstance(each, Buffer) else each for each in found]
