"""Rule: a job runs under a name of any alphabet, and fails with a report whatever is raised."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import ray
from jobs.commands import run_here
from jobs.driving import PATIENCE, eventually, submit, wait_until

from penstock import (
    Checkpointing,
    DiscardSink,
    FunctionContext,
    GeneratorSource,
    JobFailedError,
    KeyedProcessFunction,
    NoRestart,
    OutputTag,
    ProcessFunction,
    StreamEnvironment,
    ValueState,
)

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Alphabets, a dash, signs that Prometheus, HTML and URLs escape, letters beyond 16 bits, right to left.
NAME = 'Übung 注文 job\N{EN DASH}1 "a\\b" <i>&amp; %2F ../ \N{CAT FACE} كتاب'


class Marks(ProcessFunction[int, int]):
    """Sends odd numbers to a side output."""

    ungerade = OutputTag[int]("ungerade Zahlen: 注文")

    def open(self, ctx: FunctionContext) -> None:
        self.seen = ctx.counter("seen")

    def process(self, value: int, ctx: FunctionContext) -> Iterator[int]:
        self.seen.increment()
        if value % 2:
            ctx.output(self.ungerade, value)
        yield value


def exported_names() -> set[str]:
    """The values of the tag `job_name` that a Prometheus server would scrape from this node."""
    node = ray.nodes()[0]
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urlopen(address, timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'job_name="((?:[^"\\]|\\.)*)"', text)
    return {value.replace('\\"', '"').replace("\\\\", "\\") for value in found}


def test_a_job_runs_under_a_name_of_any_alphabet(tmp_path: Path) -> None:
    env = StreamEnvironment(
        NAME, checkpointing=Checkpointing(every=0.2, storage=str(tmp_path / "注文")), restart=NoRestart()
    )
    marked = env.from_source("numbers", GeneratorSource(int, rate=500)).process("marks", Marks())
    marked.side_output(Marks.ungerade).sink("odd", DiscardSink())
    marked.key_by(lambda n: n % 3).reduce("sum", lambda a, b: a + b).sink("out", DiscardSink())
    job = submit(env)
    wait_until(job, "a checkpoint", lambda report: report.statistics.completed_checkpoints > 0)

    assert job.report().name == NAME
    assert NAME in run_here("list").stdout.replace("\n", "")
    eventually("its name in Prometheus", lambda: NAME in exported_names())
    job.cancel()


class Unpickled(Exception):
    """An exception that pickles and does not unpickle."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")

    def __deepcopy__(self, memo: object) -> Unpickled:
        return self


class Unspeakable(Exception):
    """An exception whose text can't be read."""

    def __str__(self) -> str:
        raise TypeError


ERRORS: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "Unspeakable": Unspeakable,
    "50 MB": lambda: ValueError("x" * 50_000_000),
    "Unpickled": lambda: Unpickled(3, "\ud800 \x1b[31m"),
}


@pytest.mark.parametrize("make", ERRORS.values(), ids=ERRORS)
def test_whatever_a_function_raises_its_operator_line_and_record_are_reported(
    make: Callable[[], BaseException],
) -> None:
    def fails(number: int) -> int:
        raise make()

    env = StreamEnvironment("fails", restart=NoRestart())
    env.from_collection("numbers", [41]).map(fails, id="fails").sink("out", DiscardSink())
    job = submit(env)

    with pytest.raises(JobFailedError) as raised:
        job.wait(PATIENCE)

    failure = job.report().failure
    assert failure is not None
    cause = failure.root
    assert cause.operator == "fails"
    assert cause.raised_at is not None
    assert cause.raised_at.line == fails.__code__.co_firstlineno + 1
    assert "on record 41" in cause.message
    assert type(make()).__name__ in cause.message
    assert len(str(raised.value)) < 15_000


def test_a_state_refuses_what_could_not_be_read_back(tmp_path: Path) -> None:
    class Keeps(KeyedProcessFunction[int, int, int]):
        last = ValueState[Any]()

        def process(self, value: int, ctx: Any) -> Iterator[int]:
            self.last.update(Unpickled(value, "kept"))
            yield value

    env = StreamEnvironment(
        "keeps", checkpointing=Checkpointing(every=0.2, storage=str(tmp_path)), restart=NoRestart()
    )
    numbers = env.from_source("numbers", GeneratorSource(int, rate=50)).key_by(lambda n: n % 2)
    numbers.process("keeps", Keeps()).sink("out", DiscardSink())

    with pytest.raises(JobFailedError, match=r"'keeps'.*Unpickled can be pickled but not read back"):
        submit(env).wait(PATIENCE)
