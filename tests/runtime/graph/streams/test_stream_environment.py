from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig
from penstock.runtime.config.restart import FixedDelay
from penstock.runtime.errors import ConfigurationError, GraphError, OperatorLocation
from penstock.runtime.graph.executor import JobStatus
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.io.connectors.files.file_sink import FileSink
from penstock.runtime.io.connectors.files.file_source import FileSource
from penstock.runtime.operators.functions.keyed_folds import KeyedReduceOperator
from penstock.runtime.operators.operator import Operator, OperatorContext
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.testing.manual_time import ManualClock


def result_of(operator: Operator, rows: list[Any]) -> list[Any]:
    connector = ConnectorContext("job-1", "job", "some", 0, 1, 1, ManualClock())
    operator.open(OperatorContext(OperatorLocation("some"), connector))
    return [row for batch in operator.process(RowBatch(rows)) for row in batch.rows]  # type: ignore[union-attr]


def test_every_stream_knows_its_environment() -> None:
    env = StreamEnvironment()
    numbers = env.from_collection("numbers", [1, 2])
    assert numbers.environment is env
    assert numbers.map(abs).filter(bool).environment is env


def test_what_is_added_temporarily_is_in_the_jobs_of_its_block_alone() -> None:
    env = StreamEnvironment()
    numbers = env.from_collection("numbers", [1, 2])
    for _ in range(2):
        with env.temporarily():
            numbers.sink("out", FileSink.json("/data/out"))
            assert len(env.build().vertices) == 1
        with pytest.raises(GraphError, match="has no sink"):
            env.build()
    numbers.sink("out", FileSink.json("/data/out"))
    with env.temporarily():
        numbers.sink("other", FileSink.json("/data/out"))
        with pytest.raises(GraphError, match=r"'out' .*already taken"):
            numbers.sink("out", FileSink.json("/data/out"))
    numbers.sink("other", FileSink.json("/data/out"))


def test_word_count_reads_as_in_the_documentation() -> None:
    env = StreamEnvironment(
        "word-count", parallelism=2, checkpointing=Checkpointing(every=1, storage="file:///tmp/wc")
    )
    (
        env.from_source("lines", FileSource.text("*.txt"))
        .flat_map(str.split)
        .map(lambda word: (word, 1))
        .key_by(lambda pair: pair[0])
        .reduce("count", lambda a, b: (a[0], a[1] + b[1]))
        .map(lambda pair: {"word": pair[0], "count": pair[1]})
        .sink("updates", FileSink.json("counts"))
    )
    job = env.build()
    assert job.name == "word-count"
    assert [[o.id for o in v.operators] for v in job.vertices] == [
        ["lines", "flat_map-1", "map-1"],
        ["count", "map-2", "updates"],
    ]
    (edge,) = job.edges
    assert edge.partitioner.partitioning is Partitioning.KEY_GROUP
    assert edge.partitioner.key_selector is not None
    assert edge.partitioner.key_selector(("a", 1)) == "a"


def test_factories_make_operators_that_run_the_users_functions(discard: Any) -> None:
    env = StreamEnvironment()
    stream = env.from_collection("in", [1]).map(lambda n: n + 1).filter(lambda n: n % 2).flat_map(range)
    keyed = stream.map_batches(sorted).key_by(abs).reduce("max", max)
    keyed.sink("out", discard)
    first, second = env.build().vertices
    made = [o.factory() for o in first.operators if o.factory is not None]
    assert result_of(made[0], [1, 2]) == [2, 3]
    assert result_of(made[1], [1, 2]) == [1]
    assert result_of(made[2], [3]) == [0, 1, 2]
    assert result_of(made[3], [3, 1, 2]) == [1, 2, 3]
    kinds = [type(o.factory()) for o in second.operators if o.factory is not None]
    assert kinds == [KeyedReduceOperator, SinkOperator]


def test_only_what_has_state_says_so(discard: Any) -> None:
    env = StreamEnvironment()
    env.from_collection("in", [1]).map(abs).sink("out", discard)
    (vertex,) = env.build().vertices
    assert [o.stateful for o in vertex.operators] == [True, False, True]


def test_building_twice_gives_the_same_graph(discard: Any) -> None:
    env = StreamEnvironment()
    stream = env.from_collection("in", [1]).map(abs)
    stream.sink("out", discard)
    assert env.build() == env.build()
    stream.map(abs).sink("more", discard)
    assert len(env.build().vertices[0].operators) == 5


def test_an_empty_job_is_refused_with_the_line_of_its_environment() -> None:
    env = StreamEnvironment("empty")
    with pytest.raises(
        GraphError, match=r"test_stream_environment.py:\d+ in test_an_empty.*'empty' is empty; begin with"
    ):
        env.build()


def test_a_job_without_a_sink_is_refused_with_the_line_of_its_last_operator() -> None:
    env = StreamEnvironment("open")
    env.from_collection("in", [1]).map(abs)
    with pytest.raises(GraphError, match=r"'open' has no sink.*last operator is map\(abs\)"):
        env.build()


def test_a_stream_that_nobody_reads_is_allowed_beside_one_with_a_sink(discard: Any) -> None:
    env = StreamEnvironment()
    source = env.from_collection("in", [1])
    source.map(abs)
    source.sink("out", discard)
    assert [o.id for v in env.build().vertices for o in v.operators] == ["in", "map-1", "out"]


def test_settings_given_to_the_environment_win_over_its_config() -> None:
    env = StreamEnvironment(
        config=JobConfig(advanced=AdvancedConfig(credits=3), buffer_timeout=1, allow_pickle=True),
        buffer_timeout=timedelta(milliseconds=10),
        allow_pickle=False,
        restart=FixedDelay(attempts=1),
    )
    assert env.config == JobConfig(
        advanced=AdvancedConfig(credits=3),
        buffer_timeout=0.01,
        allow_pickle=False,
        restart=FixedDelay(attempts=1),
    )


def test_a_wrong_setting_is_refused_when_the_environment_is_made() -> None:
    with pytest.raises(ConfigurationError, match="buffer_timeout=-1"):
        StreamEnvironment(buffer_timeout=-1)


def test_submit_hands_graph_and_settings_to_the_executor(executor: Any, discard: Any) -> None:
    env = StreamEnvironment("mine", executor=executor, config=JobConfig(advanced=AdvancedConfig(credits=3)))
    env.from_collection("in", [1]).sink("out", discard)
    handle = env.submit()
    assert executor.submitted == [(env.build(), env.config)]
    assert handle.name == "mine"


def test_the_snapshot_to_start_from_belongs_to_one_start(executor: Any, discard: Any) -> None:
    env = StreamEnvironment("mine", executor=executor)
    env.from_collection("in", [1]).sink("out", discard)
    env.submit(restore_from=cast(Any, Path("/saved")), allow_non_restored_state=True)
    env.run(restore_from="s3://bucket/saved")
    env.submit()
    started = [(job.restore_from, job.allow_non_restored_state) for job, config in executor.submitted]
    assert started == [("/saved", True), ("s3://bucket/saved", False), (None, False)]


def test_run_waits_as_long_as_it_is_told(executor: Any, discard: Any) -> None:
    env = StreamEnvironment("mine", executor=executor)
    env.from_collection("in", [1]).sink("out", discard)
    result = env.run("tonight", timeout=5)
    assert (result.name, result.status) == ("tonight", JobStatus.FINISHED)
    assert executor.handles[0].waited_for == 5
    assert executor.handles[0].shows_progress is True


def test_run_is_quiet_when_it_is_told_so(executor: Any, discard: Any) -> None:
    env = StreamEnvironment("mine", executor=executor)
    env.from_collection("in", [1]).sink("out", discard)
    env.run(progress=False)
    assert executor.handles[0].shows_progress is False


def test_a_graph_that_can_not_be_built_is_never_submitted(executor: Any) -> None:
    with pytest.raises(GraphError):
        StreamEnvironment(executor=executor).run()
    assert executor.submitted == []


HERE = r"^tests/runtime/graph/streams/test_stream_environment.py:\d+ in lambda: "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: StreamEnvironment(""), "the name of the job: a name must not be empty"),
        (lambda env: StreamEnvironment(cast(Any, 3)), "the name of the job: a name must be a string"),
        (lambda env: StreamEnvironment(parallelism=0), "parallelism must be .* at least 1, not 0"),
        (lambda env: StreamEnvironment(parallelism=True), "parallelism must be .* not True"),
        (lambda env: StreamEnvironment(max_parallelism=0), "max_parallelism must be .* not 0"),
        (lambda env: StreamEnvironment(config=cast(Any, {})), "config: {} is not a JobConfig"),
        (lambda env: StreamEnvironment(chaining=cast(Any, "no")), "chaining must be True or False, not 'no'"),
        (
            lambda env: StreamEnvironment(executor=cast(Any, "ray")),
            "'ray' is not an Executor: it has no method",
        ),
        (lambda env: cast(Any, env).build(chain=False), r"build\(\) has no argument 'chain'; did you mean"),
        (lambda env: env.build(chaining=cast(Any, 0)), "chaining must be True or False, not 0"),
        (lambda env: cast(Any, StreamEnvironment)(paralellism=2), "did you mean 'parallelism'"),
        (lambda env: env.from_source(FileSource.text("x")), "missing a required argument: 'source'; the id"),
        (lambda env: env.from_source("", FileSource.text("x")), "id must not be empty"),
        (lambda env: env.from_source("in", FileSource), "give an object, FileSource"),
        (lambda env: env.from_source("in", [1]), r"\[1\] is not a Source: it must have the methods `splits"),
        (
            lambda env: env.from_source(FileSource.text("x"), "in"),
            "id must be a string.*comes first",
        ),
        (lambda env: env.from_collection("in", 3), "can't iterate over 3"),
        (lambda env: env.from_collection("in", [1], parallelism=0), "parallelism must be"),
        (lambda env: env.from_collection("in", [1], num_cpu=1), "did you mean 'num_cpus'"),
        (lambda env: env.from_collection("in", [1], num_cpus=-1), "num_cpus must be a number of at least 0"),
        (lambda env: env.from_collection("in", [1], start_new_chain=1), "must be True or False, not 1"),
        (lambda env: env.submit(""), "the name of the job"),
        (lambda env: env.submit(restore_from=" "), "restore_from=' ': give the path or URL"),
        (lambda env: env.submit(allow_non_restored_state=True), "has no effect without restore_from"),
        (lambda env: env.run(restore_from="/s", allow_non_restored_state=cast(Any, 1)), "True or False"),
    ],
)
def test_a_wrong_call_is_refused_with_the_users_line(
    call: Callable[[StreamEnvironment], object], message: str, discard: Any
) -> None:
    env = StreamEnvironment()
    env.from_collection("some", [1]).sink("out", discard)
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(env)


def test_a_parallelism_over_the_number_of_key_groups_is_refused() -> None:
    env = StreamEnvironment(max_parallelism=4)
    with pytest.raises(GraphError, match="parallelism 5 is more than the environment's max_parallelism 4"):
        env.from_collection("in", [1], parallelism=5)


def test_a_collection_is_read_once() -> None:
    def values() -> Iterator[int]:
        yield 1

    env = StreamEnvironment()
    once = values()
    env.from_collection("in", once)
    assert list(once) == []
