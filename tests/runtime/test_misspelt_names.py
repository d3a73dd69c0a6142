"""A misspelt name is answered with the nearest one, and nothing else changes."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import pytest

import penstock
from penstock import (
    Checkpointing,
    CheckpointingMode,
    CollectionSource,
    CollectSink,
    DiscardSink,
    ExponentialBackoff,
    FailureRate,
    FileSink,
    FileSource,
    FixedDelay,
    GeneratorSource,
    JobConfig,
    JobStatus,
    KeepAfter,
    KeyedProcessFunction,
    NoRestart,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.runtime.errors import ConfigurationError, GraphError, OperatorError
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.names import NearestMembers, NearestNames, unknown_attribute
from penstock.testing import Finding, OperatorHarness
from penstock.windows import SlidingEventTimeWindows, TumblingEventTimeWindows


def environment() -> Any:
    return StreamEnvironment()


def stream() -> Any:
    return environment().from_collection("in", [1])


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: Checkpointing(evry=1), "every"),
        (lambda: JobConfig(bufer_timeout=1), "buffer_timeout"),
        (lambda: FixedDelay(atempts=1), "attempts"),
        (lambda: ExponentialBackoff(inital=1), "initial"),
        (lambda: FailureRate(failure=1), "failures"),
        (lambda: GeneratorSource(function=int, cuont=3), "count"),
        (lambda: CollectionSource(valuse=[1]), "values"),
        (lambda: CollectSink(traget=InMemoryCollector()), "target"),
        (lambda: TumblingEventTimeWindows(sise=1), "size"),
        (lambda: SlidingEventTimeWindows(1, slid=1), "slide"),
        (lambda: FileSource.json("in", on_eror="skip"), "on_error"),
        (lambda: FileSource.csv("in", delimeter=";"), "delimiter"),
        (lambda: FileSink.parquet("out", compresion="zstd"), "compression"),
        (lambda: replace(Checkpointing(every=1), evry=2), "every"),
        (lambda: JobConfig.from_mapping({"standbys": 1}), "standby"),
        (lambda: JobConfig.from_mapping({"checkpointing": {"evry": 1}}), "every"),
        (lambda: JobConfig.from_mapping({"restart": {"kind": "fixed_dely"}}), "fixed_delay"),
    ],
)
def test_an_unknown_argument_of_what_is_set_up(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: StreamEnvironment(paralelism=1), "parallelism"),
        (lambda: environment().from_source(id="in", sorce=1), "source"),
        (lambda: stream().map(abs, paralelism=2), "parallelism"),
        (lambda: stream().key_by(kye=abs), "key"),
    ],
)
def test_an_unknown_argument_of_the_graph(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(GraphError, match=f"did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: environment().from_sorce, "from_source"),
        (lambda: stream().flatmap, "flat_map"),
        (lambda: stream().key_by(abs).reduc, "reduce"),
        (lambda: stream().key_by(abs).window(TumblingEventTimeWindows(1)).agregate, "aggregate"),
        (lambda: FileSource.jsn, "json"),
        (lambda: FileSink.parqet, "parquet"),
        (lambda: Checkpointing.from_maping, "from_mapping"),
        (lambda: CheckpointingMode.EXACTLY_ONE, "EXACTLY_ONCE"),
        (lambda: KeepAfter.ALLWAYS, "ALWAYS"),
        (lambda: JobStatus.CANCELED, "CANCELLED"),
        (lambda: Finding.LOST_OR_DOUBLED, "LOST_OR_REPEATED"),
        (lambda: WatermarkStrategy.for_monotonus_timestamps, "for_monotonous_timestamps"),
    ],
)
def test_an_unknown_member(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(AttributeError, match=f"did you mean '{meant}'"):
        call()


@pytest.mark.parametrize(
    "read", [lambda: stream().keyBy, lambda: FileSource.jsn, lambda: FileSink.text, lambda: penstock.FileSnik]
)
def test_a_traceback_has_one_hint(read: Callable[[], object]) -> None:
    """Python adds a hint of its own to an error that has the object."""
    with pytest.raises(AttributeError) as raised:
        read()
    printed = "".join(traceback.format_exception(raised.value)).splitlines()[-1]
    assert printed == f"AttributeError: {raised.value}"
    assert "did you mean" in printed or "it is called" in printed


@pytest.mark.parametrize("cls", [FileSource, FileSink])
def test_the_old_name_of_a_format_is_answered_with_the_new_one(cls: type) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'json_lines': it is called 'json'"):
        _ = cls.json_lines


@pytest.mark.parametrize(
    "value",
    [
        Checkpointing(every=1),
        JobConfig(),
        NoRestart(),
        ExponentialBackoff(),
        FileSource.json("/in"),
        FileSink.json("/out"),
        DiscardSink(),
        WatermarkStrategy.for_monotonous_timestamps(),
        KeepAfter.ALWAYS,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_can_be_pickled_and_copied_as_before(value: object) -> None:
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert other == value
        assert type(other) is type(value)


def test_a_misspelt_member_of_the_context_of_a_process_function() -> None:
    class Opened(KeyedProcessFunction[Any, Any, Any]):
        def open(self, ctx: Any) -> None:
            ctx.value_stat("seen")

        def process(self, value: Any, ctx: Any) -> None: ...

    with pytest.raises(OperatorError, match=r"'RuntimeContext' object .* did you mean 'value_state'"):
        OperatorHarness.of(lambda rows: rows.key_by(str).process("count", Opened()))


def test_streams_and_environments_can_be_copied() -> None:
    env = environment()
    assert copy.copy(env).build.__func__ is StreamEnvironment.build
    assert repr(copy.copy(env.from_collection("in", [1]))) == "DataStream(in)"


def test_protocols_that_look_for_underscored_names_find_nothing() -> None:
    for owner in (stream(), environment(), FileSource, Checkpointing):
        for name in ("_repr_svg_", "_ipython_canary_method_should_not_exist_", "__array__", "__fspath__"):
            assert not hasattr(owner, name)
            assert "did you mean" not in str(unknown_attribute(owner, name))


def test_signatures_stay_readable_for_help_and_completion() -> None:
    assert list(signature(Checkpointing).parameters)[:2] == ["every", "storage"]
    assert "on_error" in signature(FileSource.json).parameters


def test_a_constructor_that_takes_any_keyword_is_left_alone() -> None:
    class Anything(metaclass=NearestNames):
        def __init__(self, **given: int) -> None:
            self.given = given

    assert Anything(a=1).given == {"a": 1}


def test_a_known_member_that_fails_is_not_said_to_be_misspelt() -> None:
    class Slow(NearestMembers):
        @property
        def answer(self) -> int:
            raise AttributeError

    with pytest.raises(AttributeError, match="'Slow' object has no attribute 'answer' yet"):
        _ = Slow().answer
