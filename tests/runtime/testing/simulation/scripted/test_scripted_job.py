"""The job that a test drives step by step: what it runs, what it finds, and that it repeats itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from memory_storages import RefusingStorage
from simulated_jobs.scripted_job import JobStuckError, ScriptedJob

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.errors import OperatorError, StorageTimeoutError
from penstock.runtime.graph.execution_graph import ExecutionGraph, OutputChannelSpec, build_execution_graph
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.collect_sink import CollectSink, InMemoryCollector
from penstock.runtime.io.connectors.generator_source import GeneratorSource
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, EndOfData, EndOfPartition, Event
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.storage import MemoryStorage
from penstock.runtime.task.end_of_input import Phase
from penstock.runtime.testing.simulation.cluster.network import ChannelRules

CONFIG = JobConfig(checkpointing=Checkpointing(every=1), advanced=AdvancedConfig(buffer_rows=5, credits=3))


def counting(
    target: InMemoryCollector, count: int = 60, parallelism: int = 2, *, fails_at: int = -1
) -> ExecutionGraph:
    env = StreamEnvironment("count", parallelism=parallelism, max_parallelism=8)

    def pair(i: int) -> tuple[int, int]:
        if i == fails_at:
            msg = "as asked"
            raise ValueError(msg)
        return i % 4, 1

    stream = env.from_source("numbers", GeneratorSource(lambda i: i, count=count)).map(pair)
    counts = stream.key_by(lambda p: p[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
    counts.sink("out", CollectSink(target))
    return build_execution_graph(env.build())


def expected(count: int = 60) -> list[tuple[int, int]]:
    return sorted((key, n + 1) for key in range(4) for n in range(len(range(key, count, 4))))


@pytest.fixture
def target() -> InMemoryCollector:
    return InMemoryCollector()


def test_job_runs_to_its_end_and_commits_everything(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target), CONFIG, MemoryStorage())
    job.finish()
    assert job.is_finished
    assert sorted(target.rows()) == expected()
    assert job.statistics().completed == 1


def test_job_without_checkpoints_runs_to_its_end(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target), JobConfig(), MemoryStorage())
    job.finish()
    assert sorted(target.rows()) == expected()
    assert job.statistics().completed == 0


def test_same_choices_make_the_same_run(target: InMemoryCollector) -> None:
    runs = []
    for _ in range(2):
        collector = InMemoryCollector()
        job = ScriptedJob(counting(collector), CONFIG, MemoryStorage(), 7)
        job.run(150)
        job.trigger_checkpoint()
        job.finish()
        runs.append((job.statistics(), collector.rows()))
    assert runs[0] == runs[1]
    assert runs[0][0].repeated > 0
    assert runs[0][0].overtaken > 0


def test_job_starts_again_from_its_newest_checkpoint(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target, 3000), CONFIG, MemoryStorage())
    job.run(100)
    checkpoint_id = job.complete_checkpoint()
    committed = len(target.rows())
    assert 0 < committed < 3000
    job.run(50)
    job.crash(killed=SubtaskId("count", 1))
    job.finish()
    assert sorted(target.rows()) == expected(3000)
    assert job.newest is not None
    assert job.newest.checkpoint_id > checkpoint_id
    assert job.statistics().attempts == 2


def test_job_starts_from_nothing_when_it_crashes_before_any_checkpoint(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target), CONFIG, MemoryStorage())
    job.run(60)
    job.crash()
    job.finish()
    assert sorted(target.rows()) == expected()


@pytest.mark.parametrize("parallelism", [1, 3])
def test_job_starts_again_at_another_parallelism(target: InMemoryCollector, parallelism: int) -> None:
    job = ScriptedJob(counting(target, 3000), CONFIG, MemoryStorage())
    job.run(100)
    job.complete_checkpoint()
    job.crash(counting(target, 3000, parallelism))
    assert len(job.tasks) == 2 * parallelism
    job.finish()
    assert sorted(target.rows()) == expected(3000)


def test_failure_of_an_operator_comes_out_of_the_move(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target, fails_at=33), CONFIG, MemoryStorage())
    with pytest.raises(OperatorError, match=r"'map-1'.*as asked.*record 33"):
        job.finish()
    job.crash(counting(target))
    job.finish()
    assert sorted(target.rows()) == expected()


def test_subtasks_whose_data_has_ended_wait_for_the_last_checkpoint(target: InMemoryCollector) -> None:
    storage = RefusingStorage()
    job = ScriptedJob(counting(target), CONFIG, storage)
    storage.refuses = True
    job.until(lambda: all(task.has_ended for task in job.tasks.values()), "the end of all data")
    job.run(500)
    assert not job.is_finished
    assert {task.subtask.phase for task in job.tasks.values()} == {Phase.ENDED}
    assert target.rows() == []
    storage.refuses = False
    job.finish()
    assert sorted(target.rows()) == expected()


def test_job_that_can_not_end_is_reported_with_where_everybody_is(target: InMemoryCollector) -> None:
    env = StreamEnvironment("endless")
    env.from_source("numbers", GeneratorSource(lambda i: i, rate=10.0)).sink("out", CollectSink(target))
    job = ScriptedJob(build_execution_graph(env.build()), CONFIG, MemoryStorage())
    with pytest.raises(JobStuckError, match=r"the end of the job: not reached(?s:.*)numbers\[0\]: started"):
        job.finish(most_moves=500)


def test_checkpoint_that_is_given_up_is_followed_by_one_that_completes(target: InMemoryCollector) -> None:
    job = ScriptedJob(counting(target, 3000), CONFIG, MemoryStorage())
    job.run(40)
    first = job.trigger_checkpoint()
    assert first is not None
    job.run(5)
    job.give_up_checkpoint(first)
    assert job.complete_checkpoint() > first
    job.finish()
    assert sorted(target.rows()) == expected(3000)


def test_receiver_that_left_early_does_not_keep_its_sender(target: InMemoryCollector) -> None:
    """Without alignment a receiver may be covered by a checkpoint that its sender took before its own end."""
    config = JobConfig(
        checkpointing=Checkpointing(every=1, mode="at_least_once"),
        advanced=AdvancedConfig(credits=1, buffer_rows=5),
    )
    ends: list[int] = []
    for seed in range(40):
        collector = InMemoryCollector()
        job = ScriptedJob(counting(collector, 8), config, MemoryStorage(), seed)
        while not any(task.has_ended for task in job.tasks.values()):
            if not job.running:
                job.trigger_checkpoint()
            assert job.move()
        job.finish()
        ends.append(job.statistics().completed)
        assert sorted(collector.rows()) == expected(8)
    assert max(ends) > 1


# -- the network finds what breaks the rules ----------------------------------------------------------------

SENDER, CHANNEL = SubtaskId("a", 0), OutputChannelSpec(SubtaskId("b", 0), 0)
BUFFER = Buffer(b"", 0)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([(1, [EndOfData()])], "1 follows -1"),
        ([(0, [EndOfData()]), (0, [EndOfData()])], "0 follows 0"),
        ([(0, [])], "empty frame"),
        ([(0, [BUFFER, BUFFER, BUFFER])], "3 outstanding with 2 credits"),
        ([(0, [BUFFER]), (1, [BUFFER]), (2, [BUFFER])], "3 outstanding with 2 credits"),
        ([(0, [CheckpointBarrier(1, 0.0), BUFFER])], "in the middle of a frame"),
        ([(0, [EndOfPartition()]), (1, [EndOfData()])], "after the end"),
    ],
)
def test_network_finds_senders_that_break_the_rules(
    frames: Sequence[tuple[int, Sequence[Event | Buffer]]], message: str
) -> None:
    rules = ChannelRules(SENDER, CHANNEL, credits=2)
    *before, (first, elements) = frames
    for number, earlier in before:
        rules.sent(number, [encode_element(e) for e in earlier])
    with pytest.raises(AssertionError, match=message):
        rules.sent(first, [encode_element(e) for e in elements])


def test_credit_is_back_when_the_answer_is() -> None:
    rules = ChannelRules(SENDER, CHANNEL, credits=1)
    rules.sent(0, [encode_element(BUFFER)])
    with pytest.raises(AssertionError):
        rules.sent(1, [encode_element(BUFFER)])
    rules = ChannelRules(SENDER, CHANNEL, credits=1)
    rules.sent(0, [encode_element(BUFFER)])
    rules.credited(0)
    rules.sent(1, [encode_element(BUFFER)])
    assert rules.outstanding == 1


class HangingStorage(MemoryStorage):
    """Gives no answer to a read of the state of `newest`.

    Attributes:
        hangs: How many times it does not.
    """

    hangs = 0

    def get(self, path: str) -> bytes:
        if self.hangs and "newest" in path:
            self.hangs -= 1
            msg = f"{path}: no answer"
            raise StorageTimeoutError(msg)
        return super().get(path)


def test_a_read_of_state_that_hangs_is_one_failure_more(target: InMemoryCollector) -> None:
    large = "x" * 20_000  # more than what stands in the metadata of a checkpoint
    env = StreamEnvironment("newest")
    numbers = env.from_source("numbers", GeneratorSource(lambda i: (i % 4, large), count=200))
    numbers.key_by(lambda p: p[0]).reduce("newest", lambda a, b: b).sink("out", CollectSink(target))
    storage = HangingStorage()
    job = ScriptedJob(build_execution_graph(env.build()), CONFIG, storage)
    job.run(60)
    job.complete_checkpoint()
    storage.hangs = 1
    job.crash()
    job.finish()
    assert storage.hangs == 0
    assert sorted(target.rows()) == sorted((i % 4, large) for i in range(200))
    assert job.statistics().attempts == 3
