"""The work of a quick look at a stream, and its rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from penstock import Checkpointing, DiscardSink, FixedDelay, StreamEnvironment
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.restart import NoRestart
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.graph.streams.stream import frame_of, job_of_part
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector, PreviewSink, newest_rows
from penstock.runtime.testing.simulation.run.user_run import Course, UserSimulation


class LookingExecutor:
    """Keeps what it is asked for, and has rows at hand."""

    def __init__(self, *rows: Any) -> None:
        self.have = list(rows)
        self.jobs: list[JobGraph] = []
        self.configs: list[JobConfig] = []
        self.bounds: list[tuple[int | None, Any]] = []

    def submit(self, job: JobGraph, config: JobConfig) -> Any:
        raise AssertionError("a quick look is no job of the program")

    def rows(
        self, job: Callable[[Any], JobGraph], config: JobConfig, limit: int | None, timeout: Any
    ) -> list[Any]:
        self.jobs.append(job(DiscardSink()))
        self.configs.append(config)
        self.bounds.append((limit, timeout))
        return self.have[:limit]


def test_only_what_leads_to_the_stream_is_run_and_no_sink_of_the_program() -> None:
    executor = LookingExecutor()
    env = StreamEnvironment("shop", executor=executor)
    env.from_collection("visits", [1]).sink("log", DiscardSink())
    sales = env.from_collection("sales", [1]).map(abs, id="positive")
    sales.sink("out", DiscardSink())
    sales.map(str, id="later")
    sales.take()
    (job,) = executor.jobs
    assert [operator.id for vertex in job.vertices for operator in vertex.operators] == [
        "sales",
        "positive",
        "quick-look-1",
    ]
    assert job.name == "shop (quick look)"
    assert sum(len(vertex.operators) for vertex in env.build().vertices) == 6, (
        "the job of the program stays as it was"
    )


def test_operators_without_an_id_keep_the_one_that_they_have_in_the_whole_job() -> None:
    executor = LookingExecutor()
    env = StreamEnvironment(executor=executor)
    env.from_collection("visits", [1]).map(abs).sink("log", DiscardSink())
    stream = env.from_collection("sales", [1]).map(abs)
    stream.take()
    stream.sink("out", DiscardSink())
    whole = {operator.id for vertex in env.build().vertices for operator in vertex.operators}
    looked = {operator.id for vertex in executor.jobs[0].vertices for operator in vertex.operators}
    assert looked - whole == {"quick-look-1"}
    assert "map-2" in looked


def test_the_sink_of_a_quick_look_takes_no_id_of_the_program() -> None:
    executor = LookingExecutor()
    env = StreamEnvironment(executor=executor)
    env.from_collection("quick-look", [1]).map(abs, id="quick-look-1").take()
    looked = [operator.id for vertex in executor.jobs[0].vertices for operator in vertex.operators]
    assert looked == ["quick-look", "quick-look-1", "quick-look-2"]


def test_a_look_takes_no_checkpoints_is_not_restarted_and_starts_from_nothing() -> None:
    executor = LookingExecutor()
    env = StreamEnvironment(
        checkpointing=Checkpointing(every=1, storage="memory:"),
        restart=FixedDelay(attempts=3, delay=1),
        executor=executor,
    )
    env.from_collection("in", [1]).take()
    (config,) = executor.configs
    assert (config.checkpointing, config.restart) == (None, NoRestart())
    assert executor.jobs[0].restore_from is None


def test_how_many_rows_and_how_long_is_up_to_the_user() -> None:
    executor = LookingExecutor(*range(50))
    stream = StreamEnvironment(executor=executor).from_collection("in", range(50))
    assert stream.take(3, timeout=5) == [0, 1, 2]
    assert len(stream.take()) == 20
    assert len(stream.collect()) == 50
    assert executor.bounds == [(3, 5), (20, None), (None, None)]


def test_show_prints_a_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    executor = LookingExecutor({"a": 1}, "text")
    StreamEnvironment(executor=executor).from_collection("in", [1]).show(2)
    assert capsys.readouterr().out == "{'a': 1}\ntext\n"


@pytest.mark.parametrize("limit", [-1, 2.5, "3", True])
def test_a_number_of_rows_that_cannot_be_meant_is_refused_with_the_users_line(limit: Any) -> None:
    stream = StreamEnvironment(executor=LookingExecutor()).from_collection("in", [1])
    with pytest.raises(GraphError, match=r"test_quick_look\.py:\d+ in .*: the limit is a number of rows"):
        stream.take(limit)


def test_an_executor_that_brings_no_rows_back_is_named(executor: Any) -> None:
    stream = StreamEnvironment(executor=executor).from_collection("in", [1])
    with pytest.raises(ConfigurationError, match=r"RecordingExecutor has no method `rows\("):
        stream.collect()


def test_dicts_give_columns_by_name_and_anything_else_the_column_item() -> None:
    frame = frame_of([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    assert frame.to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}
    pairs = frame_of([(1, 2), (3, 4)])
    assert pairs.to_dict("list") == {"item": [(1, 2), (3, 4)]}
    assert list(frame_of([]).columns) == ["item"]


def test_without_pandas_the_error_says_what_to_install_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    executor = LookingExecutor({"a": 1})
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        StreamEnvironment(executor=executor).from_collection("in", [1]).to_pandas()
    assert executor.jobs == []


class Look(StreamEnvironment):
    """An environment whose job is that of a look at one of its streams."""

    def build(self, *, chaining: bool | None = None) -> JobGraph:
        return self.job()

    def set_job(self, job: Callable[[], JobGraph]) -> None:
        self.job = job


@pytest.mark.parametrize("seed", range(3))
def test_a_simulated_look_has_all_rows_of_joined_and_keyed_streams(seed: int) -> None:
    def build() -> tuple[StreamEnvironment, InMemoryCollector]:
        results = InMemoryCollector()
        env = Look(parallelism=2, checkpointing=Checkpointing(every=1))
        odd = env.from_collection("odd", range(1, 20, 2))
        even = env.from_collection("even", range(0, 20, 2))
        odd.sink("elsewhere", DiscardSink())
        stream = odd.union(even).key_by(lambda n: n % 3).reduce("sum", lambda a, b: a + b).map(lambda n: n)
        builder = stream._builder
        env.set_job(partial(job_of_part, env, builder.graph, stream._inputs, PreviewSink(results)))
        return env, results

    course = Course(seed, with_failures=False, rescale=False)
    run = UserSimulation(build, lambda results: newest_rows(results.rows()), course).run()
    assert not run.problem
    assert len(run.output) == 20
    assert {sum(range(r, 20, 3)) for r in range(3)} <= set(run.output)
