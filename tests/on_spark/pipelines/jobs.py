"""The jobs that the tests of this folder run, and what they watch in them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import ray

from penstock import Checkpointing, FileSink, FixedDelay, JobResult, JobStatus, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.config.restart import RestartConfig
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.spark import ReceiveBufferStatistics, from_spark, transfer_statistics
from penstock.testing import kill_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Seconds for anything that a test waits for; far more than it takes.
PATIENCE = 200.0
#: Each look is a call that its job answers, in time that it lacks elsewhere.
_POLL = 0.2


def environment(
    folder: Path,
    *,
    parallelism: int = 2,
    every: float = 0.5,
    restart: RestartConfig = FixedDelay(attempts=5, delay=0.1),  # noqa: B008 # frozen
    keep_after: str = "failure",
) -> StreamEnvironment:
    """An environment with checkpoints in the test's folder."""
    return StreamEnvironment(
        "transfer",
        parallelism=parallelism,
        checkpointing=Checkpointing(every=every, storage=str(folder / "checkpoints"), keep_after=keep_after),
        restart=restart,
    )


class Slowed:
    """Lets so many rows a second through in each subtask, until a file is there."""

    def __init__(self, rows_a_second: float, release: Path) -> None:
        self.rows_a_second = rows_a_second
        self.release = str(release)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        deadline = time.monotonic() + batch.num_rows / self.rows_a_second
        # No longer than it has to: a runtime gives a function that is slow with one row single rows.
        while (left := deadline - time.monotonic()) > 0 and not Path(self.release).exists():
            time.sleep(min(left, 0.005))
        return batch


def slow_release(folder: Path) -> None:
    """Let `Slowed`, whose file is `go` in this folder, go on as fast as it can."""
    (folder / "go").touch()


def copied(
    folder: Path, df: DataFrame, *, slow: Slowed | None = None, parallelism: int = 2, window: int = 1 << 22
) -> RayJobHandle:
    """Start a job that writes the rows of a DataFrame into Parquet files."""
    env = environment(folder, parallelism=parallelism)
    stream: Any = from_spark(env, df, id="rows", window=window)
    if slow is not None:
        stream = stream.map_batches(slow, "arrow", id="slow")
    stream.sink("out", FileSink.parquet(folder / "out"))
    handle = env.submit()
    assert isinstance(handle, RayJobHandle)
    return handle


def committed(folder: Path) -> pa.Table:
    """The rows of all committed files."""
    files = [str(f) for f in sorted((folder / "out").glob("part-*"))]
    return ds.dataset(files, format="parquet").to_table()


def assert_each_once(folder: Path, count: int, column: str = "id") -> None:
    """The committed ids are 0 to `count - 1`, each once."""
    seen = Counter(committed(folder)[column].to_pylist())
    lost = [i for i in range(count) if i not in seen]
    surplus = {i: n for i, n in seen.items() if n > 1 or not 0 <= i < count}
    assert not lost, f"{len(lost)} of {count} rows lost: {lost[:5]}"
    assert not surplus, f"{len(surplus)} rows too often: {dict(list(surplus.items())[:5])}"


def eventually(what: str, condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"not within {patience:g} s: {what}"
        time.sleep(_POLL)


def wait_until(job: RayJobHandle, what: str, condition: Callable[[JobReport], bool]) -> JobReport:
    deadline = time.monotonic() + PATIENCE
    while not condition(report := job.report()):
        seen = f"{report.status.value}, {report.statistics}, {report.failure}, {report.history}"
        assert not report.status.is_terminal, f"the job ended before {what}: {seen}"
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:g} s: {seen}"
        time.sleep(_POLL)
    return report


def after_rows(job: RayJobHandle, rows: int, checkpoints: int = 1) -> JobReport:
    """Wait until the readers have given so many rows, and so many checkpoints that hold them are complete."""

    def reached(report: JobReport) -> bool:
        read = report.statistics.operators.get("rows")
        return read is not None and read.records_out >= rows

    report = wait_until(job, f"{rows} rows", reached)
    if not checkpoints:
        return report
    # One may be in progress that began before them.
    enough = report.statistics.completed_checkpoints + checkpoints + 1
    return wait_until(
        job,
        f"{checkpoints} checkpoint(s) behind {rows} rows",
        lambda later: later.statistics.completed_checkpoints >= enough,
    )


def kill_subtask(job: RayJobHandle, vertex: str, index: int = 0) -> int:
    process = next(p for p in job.processes() if p.subtask == SubtaskId(vertex, index))
    kill_process(process)
    return process.pid


def kill_executor(told: Path) -> int:
    """Kill the executor whose task has written its process there (`tell_executor`)."""
    pid = int(told.read_text())
    assert pid in executor_pids()
    os.kill(pid, signal.SIGKILL)
    eventually("the end of the executor", lambda: pid not in executor_pids())
    return pid


def tell_executor(told: Path) -> None:
    """Called in a Spark task: write the process of its executor, at once or not at all."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text()
    parent = next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1]
    unfinished = told.with_suffix(f".{os.getpid()}")
    unfinished.write_text(parent)
    unfinished.rename(told)


def finish(job: RayJobHandle) -> JobResult:
    result = job.wait(PATIENCE)
    assert result.status is JobStatus.FINISHED
    return result


def buffers(job: RayJobHandle) -> list[ReceiveBufferStatistics]:
    return transfer_statistics(job)


def executor_pids() -> list[int]:
    """The processes of Spark's executors on this cluster."""
    session = ray._private.worker._global_node.get_session_dir_path()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            heap = any(word.startswith(b"-Xms") for word in words)
            if heap and f"-Dray.session-dir={session}".encode() in words:
                found.append(int(entry.name))
    return found
