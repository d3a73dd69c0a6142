"""Sources with a strategy: event time of the slowest split."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import CollectionSource, FileSource, GeneratorSource, OperatorError, WatermarkStrategy
from penstock.connectors import ConnectorContext, OnRequest, Polled, SplitProgress
from penstock.operators import RowBatch, WatermarkGenerator
from penstock.testing import SourceHarness

MONOTONOUS: WatermarkStrategy[Any] = WatermarkStrategy.for_monotonous_timestamps()
BY_COLUMN = MONOTONOUS.with_timestamp_column("at")
BY_VALUE = MONOTONOUS.with_timestamp_assigner(lambda n: n)


def files(folder: Path, *parts: Sequence[int]) -> str:
    for number, moments in enumerate(parts):
        lines = [f'{{"at": {moment}}}\n' for moment in moments]
        folder.joinpath(f"{number}.json").write_text("".join(lines))
    return f"{folder}/*.json"


@pytest.mark.parametrize("form", ["rows", "arrow"])
def test_a_file_that_waits_for_its_turn_holds_event_time_up(tmp_path: Path, form: Any) -> None:
    source = FileSource.json(files(tmp_path, [10, 20], [5, 15, 30]), batch_format=form)
    with SourceHarness(source, watermarks=BY_COLUMN) as harness:
        first = harness.poll()
        assert [row["at"] for row in first] == [10, 20]
        assert harness.watermarks == ()
        rest = harness.read_all()
        assert [row["at"] for row in rest] == [5, 15, 30]
        assert harness.watermarks == (29,)


def test_a_split_that_has_ended_holds_nobody_up() -> None:
    with SourceHarness(CollectionSource([3, 1, 50, 60]), watermarks=BY_VALUE) as harness:
        harness.poll(3)
        assert harness.watermarks == (49,)


def test_ranges_that_are_read_in_turn_are_splits_of_their_own() -> None:
    source = GeneratorSource(lambda n: n if n % 2 else n + 100, count=20)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(0).with_timestamp_assigner(lambda n: n)
    with SourceHarness(_Merged(source), watermarks=strategy) as harness:
        for _ in range(4):
            harness.poll(2)
        assert harness.watermarks == (2, 6), "those of the odd numbers, although the even ones are far ahead"


class _Merged:
    """Both ranges of two subtasks in one reader, as after a rescale."""

    def __init__(self, source: GeneratorSource[int]) -> None:
        self._source = source

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self._source.splits(2)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return self._source.reader(context, splits)


class Plain:
    """A reader that says nothing about splits."""

    def __init__(self, *batches: list[int]) -> None:
        self._batches = list(batches)

    def splits(self, parallelism: int) -> Sequence[Any]:
        return [0]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> Any:
        return self

    def poll(self, max_rows: int) -> Polled[int]:
        return Polled(RowBatch(self._batches.pop(0))) if self._batches else Polled()

    def snapshot(self) -> Sequence[Any]:
        return []

    def close(self) -> None:
        pass


class Nameless(Plain):
    """Speaks of splits, and does not say which one records are from."""

    split_progress = SplitProgress(("a",))


def test_a_reader_that_says_nothing_about_its_splits_is_followed_as_one() -> None:
    source = Plain([5], [3], [9])
    with SourceHarness(source, watermarks=BY_VALUE.with_idleness(10)) as harness:
        for _ in range(4):
            harness.poll()
        assert harness.watermarks == (4, 8)
        harness.advance(10)
        assert harness.is_idle


def test_a_reader_of_splits_names_the_split_of_each_batch() -> None:
    with (
        SourceHarness(Nameless([5]), watermarks=BY_VALUE) as harness,
        pytest.raises(OperatorError, match=r"source Nameless: poll failed: .*the split of each batch"),
    ):
        harness.poll()


def test_a_reader_that_says_something_else_about_its_splits_is_told_what_to_return() -> None:
    source = Plain([5])
    source.split_progress = ["a"]  # type: ignore[attr-defined]
    with pytest.raises(OperatorError, match=r"split_progress returned \['a'\]; return a SplitProgress"):
        SourceHarness(source, watermarks=BY_VALUE)


def test_an_assigner_that_fails_names_the_source_the_line_and_the_record() -> None:
    strategy = MONOTONOUS.with_timestamp_assigner(lambda row: row["at"])
    with (
        SourceHarness(CollectionSource([{}]), watermarks=strategy) as harness,
        pytest.raises(OperatorError, match=r"'source'.*timestamp assigner lambda .*KeyError.*on record {}"),
    ):
        harness.poll()


def test_a_generator_that_fails_names_the_source_and_the_line() -> None:
    class Fails(WatermarkGenerator[int]):
        def on_event(self, value: int, timestamp: int, output: Any) -> None:
            raise OSError("no luck")

    strategy = WatermarkStrategy.for_generator(Fails).with_timestamp_assigner(lambda n: n)
    with (
        SourceHarness(CollectionSource([7]), watermarks=strategy) as harness,
        pytest.raises(OperatorError, match=r"'source'.*generator Fails.on_event \(.*no luck.*on record 7"),
    ):
        harness.poll()


def test_what_assignments_on_request_bring_is_a_split_each() -> None:
    source = OnRequest(CollectionSource([1, 2, 30, 40]))
    with SourceHarness(source, watermarks=BY_VALUE) as harness:
        harness.poll(2)
        harness.poll(2)
        assert harness.watermarks == (1, 39)


def test_a_restored_split_begins_without_a_watermark() -> None:
    with SourceHarness(CollectionSource([5, 7, 9]), watermarks=BY_VALUE) as harness:
        harness.poll(2)
        assert harness.watermarks == (6,)
        saved = harness.snapshot()
    with SourceHarness(CollectionSource([5, 7, 9]), watermarks=BY_VALUE, restored=[saved]) as harness:
        assert harness.watermarks == ()
        harness.poll(2)
        assert harness.watermarks == (8,)
