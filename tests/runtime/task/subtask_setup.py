"""One subtask of a graph with recorded surroundings: its frames, reports, uploads and clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from manual_work import TwoStepRunner

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.graph.execution_graph import OutputChannelSpec, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.ports import SpillFileOpener
from penstock.runtime.record.element_codec import BatchCodec, decode_element, encode_element
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    Buffer,
    CheckpointBarrier,
    Event,
    RowBatch,
    StreamElement,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit, TaskRestore
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.task.build import build_subtask
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.subtask import StepResult
from penstock.runtime.testing.manual_event_loop import HarnessEventLoop
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.durations import as_seconds

CODEC = BatchCodec()
CHECKPOINTING = JobConfig(checkpointing=Checkpointing(every=1))


@dataclass
class Log:
    """Calls of users' code, in order."""

    calls: list[Any] = field(default_factory=list)


@dataclass
class ScriptedSource:
    """Gives what its script says, poll by poll; its split is the number of the next poll."""

    script: Sequence[Polled[Any] | Exception]
    log: Log = field(default_factory=Log)

    def splits(self, parallelism: int) -> Sequence[int]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[int]) -> ScriptedReader:
        self.log.calls.append(("reader", list(splits)))
        return ScriptedReader(self, next(iter(splits), len(self.script)))


class ScriptedReader:
    def __init__(self, source: ScriptedSource, position: int) -> None:
        self._source = source
        self._position = position

    def poll(self, max_rows: int) -> Polled[Any]:
        if self._position >= len(self._source.script):
            return Polled(finished=True)
        polled = self._source.script[self._position]
        if isinstance(polled, Exception):
            raise polled
        if polled.batch is not None or polled.dead_letters or polled.finished:
            self._position += 1
        return polled

    def snapshot(self) -> Sequence[int]:
        return [self._position]

    def close(self) -> None:
        self._source.log.calls.append("source closed")


@dataclass
class LoggingSink:
    """Logs transactions; a transaction is the list of its rows."""

    log: Log = field(default_factory=Log)

    def writer(self, context: ConnectorContext) -> LoggingWriter:
        return LoggingWriter(self.log)


class LoggingWriter:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._open: list[Any] = []

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch)
        self._open += batch.rows

    def prepare_commit(self) -> Sequence[Any]:
        ended, self._open = self._open, []
        return [ended] if ended else []

    def commit(self, committables: Sequence[Any], permit: CommitPermit) -> None:
        self._log.calls.append(("commit", list(committables), permit.checkpoint_id))

    def close(self) -> None:
        self._log.calls.append("sink closed")


def job_config(**settings: Any) -> JobConfig:
    """A `JobConfig` from its settings and those of `AdvancedConfig`."""
    names = {each.name for each in fields(AdvancedConfig)}
    advanced = {name: settings.pop(name) for name in names & set(settings)}
    return JobConfig(advanced=AdvancedConfig(**advanced), **settings)


def rows(*values: Any) -> RowBatch:
    return RowBatch(list(values))


class SubtaskSetup:
    """Holds one subtask.

    Args:
        env: The job.
        vertex: Which vertex's subtask.
        config: The job's settings.
        restore: What it starts from.
        splits: Of its source.
    """

    def __init__(
        self,
        env: StreamEnvironment,
        vertex: str,
        config: JobConfig = CHECKPOINTING,
        *,
        restore: TaskRestore | None = None,
        splits: Sequence[Any] = (0,),
        clock: ManualClock | None = None,
        storage: MemoryStorage | None = None,
        open_spill_file: SpillFileOpener | None = None,
    ) -> None:
        self.loops: list[HarnessEventLoop] = []
        self.clock = clock or ManualClock()
        self._rest = as_seconds(config.buffer_timeout) / 10
        self.runner = TwoStepRunner()
        self.storage = storage or MemoryStorage()
        self.frames: list[tuple[OutputChannelSpec, int]] = []
        self.sent: list[list[StreamElement | Batch]] = []
        self.taken: dict[int, int] = {}
        self.acknowledged: dict[int, SubtaskSnapshot] = {}
        self.metrics: dict[int, CheckpointMetrics] = {}
        self.declined: list[tuple[int, CheckpointFailureReason, str]] = []
        self.ends = 0
        self.warnings: list[tuple[str, str]] = []
        self.events_sent: list[tuple[str, Any]] = []
        self._numbers: dict[int, int] = {}
        graph = build_execution_graph(env.build())
        self.spec = graph.subtask(SubtaskId(vertex, 0))
        self._outputs = [channel for edge in self.spec.outputs for channel in edge.channels]
        self.sent = [[] for _ in self._outputs]
        has_source = self.spec.vertex.is_source
        descriptor = TaskDescriptor(
            "job", env.name, 1, self.spec, config, restore, tuple(splits) if has_source else ()
        )
        self.subtask = build_subtask(
            descriptor,
            self,
            self.runner,
            self.clock,
            self.storage,
            open_spill_file=open_spill_file,
            open_event_loop=self._open_event_loop,
        )

    def _open_event_loop(self, on_blocked: Callable[[str, float], None]) -> HarnessEventLoop:
        self.loops.append(HarnessEventLoop(self.clock, on_blocked))
        return self.loops[-1]

    # -- what the subtask says ------------------------------------------------------------------------------

    def send(self, channel: OutputChannelSpec, first_sequence_number: int, elements: list[bytes]) -> None:
        self.frames.append((channel, first_sequence_number))
        for element in map(decode_element, elements):
            decoded = CODEC.decode(element) if isinstance(element, Buffer) else element
            self.sent[self._outputs.index(channel)].append(decoded)

    def consumed(self, channel: int, next_sequence_number: int) -> None:
        self.taken[channel] = next_sequence_number

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        assert checkpoint_id not in self.acknowledged
        self.acknowledged[checkpoint_id] = snapshot
        self.metrics[checkpoint_id] = metrics

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self.declined.append((checkpoint_id, reason, detail))

    def end_of_data(self) -> None:
        self.ends += 1

    def warn(self, operator_id: str, text: str) -> None:
        self.warnings.append((operator_id, text))

    def operator_event(self, operator_id: str, event: Any) -> None:
        self.events_sent.append((operator_id, event))

    # -- what is done to it ---------------------------------------------------------------------------------

    def deliver(self, *elements: Batch | Event, channel: int = 0) -> None:
        """One frame."""
        first = self._numbers.get(channel, 0)
        self._numbers[channel] = first + len(elements)
        self.fill(first, *elements, channel=channel)

    def skip(self, count: int, channel: int = 0) -> None:
        """The next elements will come late: go on behind them."""
        self._numbers[channel] = self._numbers.get(channel, 0) + count

    def fill(self, first_sequence_number: int, *elements: Batch | Event, channel: int = 0) -> None:
        """One frame with these numbers."""
        encoded = [
            encode_element(CODEC.encode(e) if isinstance(e, RowBatch | ArrowBatch) else e) for e in elements
        ]
        self.subtask.deliver(channel, first_sequence_number, encoded)

    def answer(self, count: int | None = None) -> None:
        """The receivers have consumed the oldest frames; all by default, also those that this lets out."""
        while self.frames and count != 0:
            self.subtask.frame_consumed(*self.frames.pop(0))
            count = None if count is None else count - 1

    def run(self, most_steps: int = 200) -> StepResult:
        """Step until there is nothing more to do."""
        for _ in range(most_steps):
            result = self.subtask.step()
            if not result.more:
                return result
        msg = f"there is more to do after {most_steps} steps"
        raise AssertionError(msg)

    def run_freely(self) -> StepResult:
        """Step until there is nothing more to do, with receivers that consume everything at once.

        Time advances as far as idle channels rest before they send again.
        """
        while True:
            result = self.run()
            if self.frames:
                self.answer()
            elif result.wake_at is not None and result.wake_at <= self.clock.monotonic() + self._rest:
                self.clock.advance(result.wake_at - self.clock.monotonic())
            else:
                return result

    def wait(self, seconds: float) -> None:
        """Let time pass; the subtask is stepped when it wants to be."""
        until = self.clock.monotonic() + seconds
        while (at := self.run_freely().wake_at) is not None and at <= until:
            self.clock.advance_to(at)
        self.clock.advance_to(until)
        self.run_freely()

    def upload(self) -> None:
        """Finish everything beside the task."""
        while self.runner.waiting:
            self.runner.do(0)
        while self.runner.done:
            self.runner.done.pop(0).tell()

    def run_coroutines(self) -> None:
        """Run all coroutines until they wait; their answers reach the subtask."""
        for loop in self.loops:
            loop.loop.run_ready()

    def trigger(self, checkpoint_id: int) -> None:
        self.subtask.trigger_checkpoint(CheckpointBarrier(checkpoint_id, self.clock.now()))

    def checkpoint(self, checkpoint_id: int) -> SubtaskSnapshot:
        """A checkpoint of a source's subtask, acknowledged."""
        self.trigger(checkpoint_id)
        self.run_freely()
        self.upload()
        return self.acknowledged[checkpoint_id]

    def rows(self, channel: int = 0) -> list[Any]:
        """Rows sent on a channel."""
        return [row for batch in self.sent[channel] if isinstance(batch, RowBatch) for row in batch.rows]

    def events(self, channel: int = 0) -> list[Any]:
        """Events sent on a channel."""
        return [element for element in self.sent[channel] if not isinstance(element, RowBatch)]
