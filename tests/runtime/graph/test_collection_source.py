from __future__ import annotations

import pytest

from penstock.runtime.graph.collection_source import CollectionReader, CollectionSource


def read_all(reader: CollectionReader[int], max_rows: int) -> list[int]:
    rows: list[int] = []
    finished = False
    while not finished:
        polled = reader.poll(max_rows)
        rows += polled.batch.rows if polled.batch is not None else []  # type: ignore[union-attr]
        finished = polled.finished
    return rows


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 20])
def test_every_value_is_in_exactly_one_split(parallelism: int) -> None:
    source = CollectionSource(iter(range(10)))
    splits = source.splits(parallelism)
    assert len(splits) == min(parallelism, 10)
    rows = [row for split in splits for row in read_all(source.reader(None, [split]), 4)]  # type: ignore[arg-type]
    assert rows == list(range(10))


def test_a_restored_reader_goes_on_after_the_last_value() -> None:
    source = CollectionSource(range(10))
    reader = source.reader(None, [(0, 5), (5, 10)])  # type: ignore[arg-type]
    first = reader.poll(3)
    assert first.batch is not None
    restored = source.reader(None, reader.snapshot())  # type: ignore[arg-type]
    assert [*first.batch.rows, *read_all(restored, 3)] == list(range(10))  # type: ignore[union-attr]


def test_a_reader_without_splits_is_finished_at_once() -> None:
    polled = CollectionReader[int]((), []).poll(10)
    assert (polled.finished, polled.batch) == (True, None)


def test_a_finished_reader_has_nothing_left_to_keep() -> None:
    reader = CollectionReader((1, 2), [(0, 2)])
    read_all(reader, 10)
    assert reader.snapshot() == []
