"""Every argument that is a duration takes a `timedelta` or seconds; errors of other values name the argument.

The arguments are found in the signatures of the public modules, so a new one is tried, too.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, get_overloads

import pytest
from door import public_values

import penstock
from penstock import patterns, spark, testing, windows
from penstock.aggregates import Sum
from penstock.cluster import RayJobHandle
from penstock.connected import KeyedBroadcastProcessFunction
from penstock.delta import DeltaSource
from penstock.files import FolderWatch
from penstock.formats import Json, SchemaRegistry
from penstock.http import HttpSink, WebhookSource
from penstock.iceberg import IcebergSink, IcebergSource
from penstock.kafka import KafkaSink, KafkaSource
from penstock.mqtt import MqttSource
from penstock.nats import JetStreamSource
from penstock.operators import Operator, OperatorCoordinator
from penstock.ray_data import to_ray_dataset
from penstock.redis import RedisStreamSource
from penstock.runtime.testing.simulation.world.agenda import Draws, draw_conditions
from penstock.runtime.testing.simulation.world.world import World
from penstock.runtime.time.durations import as_seconds
from penstock.sql import PostgresCdcSource, SqlLookup, SqlSink, SqlSource

DURATION = re.compile(r"\b(Duration|Ttl)\b")
NUMBER = re.compile(r"\b(float|timedelta)\b")

#: Public arguments that are numbers but not durations.
NO_DURATIONS = {
    "ExponentialBackoff.multiplier": "a factor",
    "ExponentialBackoff.jitter": "a share",
    "GeneratorSource.rate": "records a second",
    "DataStream.rate_limit.per_second": "records a second",
    "Gauge.set.value": "a measured value",
    "Histogram.update.value": "a measured value",
    "MasterHook.trigger_checkpoint.timestamp": "a moment",
    "Operator.tick.now": "a moment",
    "TwoInputOperator.tick.now": "a moment",
    "ManualClock.start": "a moment",
    "ManualClock.advance_to.monotonic": "a moment",
    "ManualClock.set_wall_clock.now": "a moment",
    "Polled.ready_at": "a moment",
    "LastCommit.at": "a moment",
    "VersionLag.committed_at": "a moment",
    "WatermarkStrategy.timestamp_assigner": "a function that returns a moment",
    "WatermarkStrategy.with_timestamp_assigner.assigner": "a function that returns a moment",
    "WatermarkStrategy.interval": "a field that for_generator fills, in seconds",
    "WatermarkStrategy.idle_after": "a field that with_idleness fills, in seconds",
}
#: Options of operators that are not durations.
OPTIONS = {"num_cpus", "num_gpus", "resources"}
#: Users get these and don't make them; their durations are seconds.
RESULTS = {"CheckpointResult", "JobResult", "JobReport", "GaugeStatistics", "HistogramStatistics"}
#: Interfaces without code.
INTERFACES = {"JobHandle", "OperatorCoordinatorContext", "SplitEnumeratorContext"}
#: Calls that are refused here for another reason: without Spark, Ray or a job.
REFUSED = {"spark_session", "to_ray_dataset", "to_spark", "wait_for_transfer"}
#: Arguments that may be negative.
SIGNED = {"offset"}


#: A session of Spark that has been stopped.
STOPPED: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))


class Asked(Exception):
    """Raised by the step after the check of the arguments: they were accepted."""


class NoCluster:
    """Stands in for a handle's JobMaster and for an executor; raises `Asked` with the request."""

    def ask(self, method: str, *arguments: Any, of_ended: Any, deadline: Any, request: str = "") -> Any:
        raise Asked(round(deadline.left()))

    def quick(
        self, method: str, *arguments: Any, of_ended: Any, timeout: Any = None, within: Any = None
    ) -> Any:
        raise Asked(method, timeout is not None)

    def rows(self, job: Any, config: Any, limit: Any, timeout: Any) -> Any:
        raise Asked(as_seconds(timeout))

    def submit(self, job: Any, config: Any) -> Any:
        return self

    def wait(self, timeout: Any, *, progress: bool) -> Any:
        raise Asked(as_seconds(timeout))


def handle() -> Any:
    made: Any = RayJobHandle("none", "none")
    made._master = NoCluster()
    return made


def stream() -> Any:
    env = penstock.StreamEnvironment(executor=NoCluster())  # type: ignore[arg-type]
    return env.from_collection("in", [1])


def sunk() -> Any:
    env = stream().environment
    env.from_collection("more", [1]).sink("out", penstock.DiscardSink())
    return env


def keyed() -> Any:
    return stream().key_by(abs)


def aggregated(emit_every: Any) -> Any:
    sums = stream().key_by("k").aggregate("sums", total=Sum("v"), emit_every=emit_every)
    (made,) = (n.operator.factory for n in sums._builder.graph.nodes if n.operator.id == "sums")
    return made.args[2:]


class Coordinated(Operator):
    def coordinator(self, context: Any) -> OperatorCoordinator:
        return OperatorCoordinator()


async def answered(numbers: Any) -> Any:
    return numbers


def called(stream: Any, **duration: Any) -> Any:
    made = stream.map_async(answered, id="called", batch=2, **duration)
    (factory,) = (n.operator.factory for n in made._builder.graph.nodes if n.operator.id == "called")
    return factory.args[-1]


def chosen(call: str, *arguments: Any) -> Callable[..., Any]:
    def operator(ttl: Any) -> Any:
        added = getattr(stream(), call)("chosen", *arguments, ttl=ttl)
        (made,) = (n.operator.factory for n in added._builder.graph.nodes if n.operator.id == "chosen")
        return made.args, made.keywords

    return operator


def as_of(**on: str) -> Callable[..., Any]:
    def joined(tolerance: Any) -> Any:
        one = stream() if on else stream().key_by("k")
        made = one.join_asof(one, tolerance=tolerance, id="joined", **on)
        (factory,) = (n.operator.factory for n in made._builder.graph.nodes if n.operator.id == "joined")
        return factory.args[0]

    return joined


def looked_up(**duration: Any) -> Any:
    made = stream().lookup(answered, on="k", id="found", **duration)
    (factory,) = (n.operator.factory for n in made._builder.graph.nodes if n.operator.id == "found")
    return factory.args[-2:]


def monotonous() -> Any:
    return penstock.WatermarkStrategy.for_monotonous_timestamps()


def late(call: str) -> Callable[..., Any]:
    assigner = windows.TumblingEventTimeWindows(60)
    made = (lambda: keyed().window(assigner)) if call == "window" else lambda: stream().window_all(assigner)
    return lambda lateness: made().allowed_lateness(lateness)._settings.lateness


def requested(kind: str) -> Callable[..., Any]:
    """Asks the context of a process function for a state with a TTL."""
    more = {"reducing_state": {"function": max}, "aggregating_state": {"function": Newest()}}

    class Asks(penstock.KeyedProcessFunction[int, int, object]):
        def __init__(self, ttl: Any) -> None:
            self.ttl = ttl

        def process(self, value: int, ctx: Any) -> list[object]:
            getattr(ctx, kind)("s", ttl=self.ttl, **more.get(kind, {}))
            return []

    return lambda ttl: driven(lambda stream: stream.key_by(abs).process("asks", Asks(ttl)))


def requested_beside(kind: str) -> Callable[..., Any]:
    """Asks the context of a function beside a broadcast stream for a state with a TTL."""
    more = {"reducing_state": {"function": max}, "aggregating_state": {"function": Newest()}}

    class Asks(KeyedBroadcastProcessFunction[int, int, int, object]):
        def __init__(self, ttl: Any) -> None:
            self.ttl = ttl

        def process_element(self, value: int, ctx: Any) -> list[object]:
            return []

        def process_broadcast_element(self, value: int, ctx: Any) -> list[object]:
            getattr(ctx, kind)("s", ttl=self.ttl, **more.get(kind, {}))
            return []

    def asked(ttl: Any) -> list[Any]:
        def build(numbers: Any, others: Any) -> Any:
            return numbers.key_by(abs).connect(others.broadcast()).process("asks", Asks(ttl))

        with testing.OperatorHarness.of(build) as harness:
            return harness.push([1], input_index=1)

    return asked


def opened(kind: str) -> Callable[..., Any]:
    """Asks the context of an operator for a state with a TTL."""
    more = {"reducing_state": {"function": max}, "aggregating_state": {"function": Newest()}}

    class Opens(Operator):
        def __init__(self, ttl: Any) -> None:
            self.ttl = ttl

        def open(self, context: Any) -> None:
            getattr(context, kind)("s", ttl=self.ttl, **more.get(kind, {}))

        def process(self, batch: Any) -> Iterator[Any]:
            yield batch

    return lambda ttl: driven(lambda stream: stream.key_by(abs).transform("opens", Opens(ttl)))


def driven(build: Callable[[Any], Any]) -> list[Any]:
    with testing.OperatorHarness.of(build) as harness:
        return harness.push([1])


class Newest(penstock.AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return max(value, accumulator)

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, two: int) -> int:
        return max(one, two)


def clock_after(duration: Any) -> float:
    clock = testing.ManualClock()
    clock.advance(duration)
    return clock.monotonic()


def in_world(method: str, *arguments: Any) -> Callable[..., Any]:
    def called(**duration: Any) -> Any:
        draws = Draws(0)
        world = World(0, draw_conditions(draws), None)
        run = testing.WorldContext(world, draws, with_failures=False)
        getattr(run, method)(*arguments, **duration)
        return world.clock.monotonic(), world.agenda.next_time, run.is_away

    return called


def operator_after(duration: Any) -> float:
    with testing.OperatorHarness.of(lambda numbers: numbers.map(str)) as harness:
        harness.advance(duration)
        return harness.clock.monotonic()


def source_after(duration: Any) -> float:
    with testing.SourceHarness(penstock.CollectionSource([1])) as harness:
        harness.advance(duration)
        return harness.clock.monotonic()


def of_class(cls: Any, **more: Any) -> Callable[..., Any]:
    return lambda **given: vars(cls(**{**more, **given}))


def checkpointing(**given: Any) -> Any:
    return penstock.Checkpointing(**{"every": 1, "unaligned": "aligned_timeout" in given, **given})


CALLS: dict[str, Callable[..., Any]] = {
    "AdvancedConfig": penstock.AdvancedConfig,
    "AggregatingState": lambda ttl: penstock.AggregatingState(Newest(), ttl=ttl).ttl,
    "AllWindowedStream.allowed_lateness": late("window_all"),
    "Checkpointing": checkpointing,
    "ContinuousEventTimeTrigger": of_class(windows.ContinuousEventTimeTrigger),
    "ContinuousProcessingTimeTrigger": of_class(windows.ContinuousProcessingTimeTrigger),
    "DataStream.lookup": looked_up,
    "DataStream.join_asof": as_of(on="k"),
    "KeyedStream.join_asof": as_of(),
    "DataStream.dedup": chosen("dedup", "k"),
    "DataStream.latest_by": chosen("latest_by", "v", "k"),
    "DataStream.top_n": chosen("top_n", "v", 3, "k"),
    "DataStream.collect": lambda timeout: stream().collect(timeout=timeout),
    "DataStream.show": lambda timeout: stream().show(timeout=timeout),
    "DataStream.take": lambda timeout: stream().take(timeout=timeout),
    "DataStream.to_pandas": lambda timeout: stream().to_pandas(timeout=timeout),
    "DeltaSource": partial(DeltaSource, "/in"),
    "EventTimeSessionWindows": of_class(windows.EventTimeSessionWindows),
    "ExponentialBackoff": penstock.ExponentialBackoff,
    "FailureRate": penstock.FailureRate,
    "FixedDelay": penstock.FixedDelay,
    "JobConfig": penstock.JobConfig,
    "KafkaSink": partial(KafkaSink, "localhost:9092", "out"),
    "KafkaSource": partial(KafkaSource, "localhost:9092", "in"),
    "PostgresCdcSource": partial(
        PostgresCdcSource, "postgresql://localhost/shop", "orders", slot="orders", publication="shop"
    ),
    "RedisStreamSource": partial(RedisStreamSource, "redis://localhost", "in"),
    "SqlLookup": partial(SqlLookup, "sqlite:///in.db", "SELECT 1 AS id", key=["id"]),
    "SqlSink": partial(SqlSink, "sqlite:///out.db", "out"),
    "SqlSource": lambda **duration: SqlSource(
        "sqlite:///in.db", "SELECT 1 AS id", by=["id"], **{"watch": 1, **duration}
    ),
    "HttpSink": partial(HttpSink, "http://localhost"),
    "IcebergSink": partial(IcebergSink, "shop.orders", catalog={}),
    "IcebergSource": partial(IcebergSource, "shop.orders", catalog={}),
    "WebhookSource": partial(WebhookSource, 8085),
    "CoordinatorHarness.advance": lambda duration: testing.CoordinatorHarness(Coordinated()).advance(
        duration
    ),
    "FileSource.csv": partial(penstock.FileSource.csv, "/in"),
    "FileSource.json": partial(penstock.FileSource.json, "/in"),
    "FileSource.parquet": partial(penstock.FileSource.parquet, "/in"),
    "FileSource.records": partial(penstock.FileSource.records, "/in", Json()),
    "FileSource.text": partial(penstock.FileSource.text, "/in"),
    "FolderWatch": lambda **duration: FolderWatch(**{"every": 60, **duration}),
    "KafkaWorld.put": lambda after: testing.KafkaWorld({"words": 1}).put("words", (), after=after),
    "MqttSource": partial(MqttSource, "localhost", "in", client_id="c"),
    "JetStreamSource": partial(JetStreamSource, "nats://localhost", "in"),
    "SchemaRegistry": partial(SchemaRegistry, "http://localhost:8081"),
    "DataStream.map_async": lambda **duration: called(stream(), **duration),
    "KeyedStream.map_async": lambda **duration: called(keyed(), **duration),
    "KeyedStream.aggregate": aggregated,
    "ListState": lambda ttl: penstock.ListState(int, ttl=ttl).ttl,
    "ManualClock.advance": clock_after,
    "MapState": lambda ttl: penstock.MapState(int, ttl=ttl).ttl,
    "WorldContext.after": lambda delay: in_world("after")(delay=delay, act=str, what="later"),
    "WorldContext.call": in_world("call", str),
    "WorldContext.go_away": in_world("go_away"),
    "WorldContext.in_thread": in_world("in_thread", str, "a thread"),
    "WorldContext.spend": in_world("spend"),
    "OperatorContext.aggregating_state": opened("aggregating_state"),
    "OperatorContext.list_state": opened("list_state"),
    "OperatorContext.map_state": opened("map_state"),
    "OperatorContext.reducing_state": opened("reducing_state"),
    "OperatorContext.value_state": opened("value_state"),
    "OperatorHarness.advance": operator_after,
    "Pattern.within": lambda duration: patterns.Pattern.begin("a").within(duration).limit,
    "ProcessingTimeSessionWindows": of_class(windows.ProcessingTimeSessionWindows),
    "RayJobHandle.checkpoint": lambda timeout: handle().checkpoint(timeout=timeout),
    "RayJobHandle.ends_within": lambda timeout: handle().ends_within(timeout),
    "RayJobHandle.rescale": lambda timeout: handle().rescale({"in": 2}, timeout=timeout),
    "RayJobHandle.sample_edge": lambda timeout: handle().sample_edge(0, timeout=timeout),
    "RayJobHandle.savepoint": lambda timeout: handle().savepoint(timeout=timeout),
    "RayJobHandle.stop": lambda timeout: handle().stop(timeout=timeout),
    "RayJobHandle.wait": lambda timeout: handle().wait(timeout),
    "ReducingState": lambda ttl: penstock.ReducingState(max, ttl=ttl).ttl,
    "Retry": penstock.Retry,
    "BroadcastContext.aggregating_state": requested_beside("aggregating_state"),
    "BroadcastContext.list_state": requested_beside("list_state"),
    "BroadcastContext.map_state": requested_beside("map_state"),
    "BroadcastContext.reducing_state": requested_beside("reducing_state"),
    "BroadcastContext.value_state": requested_beside("value_state"),
    "RuntimeContext.aggregating_state": requested("aggregating_state"),
    "RuntimeContext.list_state": requested("list_state"),
    "RuntimeContext.map_state": requested("map_state"),
    "RuntimeContext.reducing_state": requested("reducing_state"),
    "RuntimeContext.value_state": requested("value_state"),
    "SourceHarness.advance": source_after,
    "StateTtl": penstock.StateTtl,
    "StateTtl.of": penstock.StateTtl.of,
    "StreamEnvironment": lambda buffer_timeout: (
        penstock.StreamEnvironment(buffer_timeout=buffer_timeout).config
    ),
    "StreamEnvironment.run": lambda timeout: sunk().run(timeout=timeout),
    "TimeEvictor": of_class(windows.TimeEvictor),
    "ValueState": lambda ttl: penstock.ValueState(int, ttl=ttl).ttl,
    "WatermarkStrategy.for_bounded_out_of_orderness": (
        penstock.WatermarkStrategy.for_bounded_out_of_orderness
    ),
    "WatermarkStrategy.for_generator": lambda interval: penstock.WatermarkStrategy.for_generator(
        dict, interval
    ),
    "WatermarkStrategy.with_alignment": lambda max_drift=1, interval=1: monotonous().with_alignment(
        "all", max_drift, interval
    ),
    "WatermarkStrategy.with_idleness": lambda timeout: monotonous().with_idleness(timeout),
    "WindowedStream.allowed_lateness": late("window"),
    "spark_session": lambda start_timeout: spark.spark_session(executors=0, start_timeout=start_timeout),
    "to_ray_dataset": lambda timeout: to_ray_dataset(None, timeout=timeout),  # type: ignore[arg-type]
    "to_spark": lambda timeout: spark.to_spark(handle(), STOPPED, timeout=timeout),
    "wait_for_transfer": lambda timeout: spark.wait_for_transfer(None, timeout),  # type: ignore[arg-type]
    **{
        name: of_class(getattr(windows, name), **more)
        for name, more in {
            "CumulativeEventTimeWindows": {"max_size": 70, "step": 7},
            "CumulativeProcessingTimeWindows": {"max_size": 70, "step": 7},
            "SlidingEventTimeWindows": {"size": 70, "slide": 7},
            "SlidingProcessingTimeWindows": {"size": 70, "slide": 7},
            "TumblingEventTimeWindows": {"size": 70},
            "TumblingProcessingTimeWindows": {"size": 70},
        }.items()
    },
}


def arguments() -> Iterator[tuple[str, str, str]]:
    """Call, argument and annotation of everything that users may call."""
    for qualified, value in sorted(public_values().items()):
        name = qualified.rpartition(".")[2]
        calls = {name: value}
        if inspect.isclass(value):
            methods = (method for method in dir(value) if not method.startswith("_"))
            calls |= {f"{name}.{method}": getattr(value, method) for method in methods}
        for call, function in calls.items():
            is_ours = str(getattr(function, "__module__", "")).startswith("penstock.")
            is_error = inspect.isclass(function) and issubclass(function, BaseException)
            if name not in RESULTS | INTERFACES and callable(function) and is_ours and not is_error:
                for form in get_overloads(function) or [function]:
                    parameters = inspect.signature(form).parameters.values()
                    yield from ((call, each.name, str(each.annotation)) for each in parameters)


DURATIONS = sorted(
    {(call, argument) for call, argument, annotation in arguments() if DURATION.search(annotation)}
)


def outcome(call: str, argument: str, value: Any) -> Any:
    """The result of a call, or the step that it would have taken."""
    try:
        return CALLS[call](**{argument: value})
    except Asked as asked:
        return asked.args
    except penstock.PenstockError as error:
        if call in REFUSED and f"{argument}=" not in str(error):
            return str(error)
        raise


def test_every_argument_that_is_a_duration_is_tried() -> None:
    assert {call for call, _ in DURATIONS} == set(CALLS)


def test_a_number_that_is_no_duration_says_what_it_is() -> None:
    numbers = {f"{call}.{name}" for call, name, kind in arguments() if NUMBER.search(kind)}
    numbers -= {f"{call}.{name}" for call, name, _ in arguments() if name in OPTIONS}
    assert numbers == set(NO_DURATIONS)


@pytest.mark.parametrize(("call", "argument"), DURATIONS)
def test_a_timedelta_and_seconds_mean_the_same(call: str, argument: str) -> None:
    span = timedelta(seconds=70) if argument in ("size", "max_size") else timedelta(seconds=7)
    taken = outcome(call, argument, span)
    assert repr(taken) == repr(outcome(call, argument, span.total_seconds()))
    assert repr(taken) == repr(outcome(call, argument, int(span.total_seconds())))


@pytest.mark.parametrize("value", [True, math.nan, math.inf, "7 s", -1, timedelta(-1)], ids=str)
@pytest.mark.parametrize(("call", "argument"), DURATIONS)
def test_what_is_no_duration_is_refused_by_the_name_of_its_argument(
    call: str, argument: str, value: Any
) -> None:
    if argument in SIGNED and value == -1:
        return
    with pytest.raises(penstock.PenstockError, match=rf"\b{argument}={re.escape(repr(value))}: give "):
        CALLS[call](**{argument: value})
