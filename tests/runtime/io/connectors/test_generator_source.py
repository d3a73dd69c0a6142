from __future__ import annotations

import pytest

from penstock import ConnectorError, GeneratorSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.source import Source


def test_records_come_in_the_order_of_their_numbers(read_all):
    source = GeneratorSource(lambda i: i * i, count=10)
    assert isinstance(source, Source)
    assert read_all(source, max_rows=3).rows == [i * i for i in range(10)]
    assert read_all(source, max_rows=3, restore_every=1).rows == [i * i for i in range(10)]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_subtasks_share_the_numbers(count, context, drain):
    source = GeneratorSource(lambda i: i, count=count)
    splits = source.splits(3)
    per_subtask = [drain(source.reader(context(), [split]), 4).rows for split in splits]
    assert sorted(i for rows in per_subtask for i in rows) == list(range(count))
    together = drain(source.reader(context(), splits), 4).rows
    assert sorted(together) == list(range(count))


def test_restored_at_another_parallelism_every_number_comes_once(context, drain):
    source = GeneratorSource(lambda i: i, count=1000)
    seen, left = [], []
    for number, split in enumerate(source.splits(3)):
        reader = source.reader(context(), [split])
        seen += drain(reader, 10, stop_after=10 * number).rows
        left += reader.snapshot()
    seen += drain(source.reader(context(), left[:2])).rows + drain(source.reader(context(), left[2:])).rows
    assert sorted(seen) == list(range(1000))


def test_without_a_count_there_is_no_end(context, drain):
    source = GeneratorSource(lambda i: i)
    reader = source.reader(context(), source.splits(1))
    assert drain(reader, 1000, stop_after=5000).rows == list(range(5000))


def test_a_rate_says_when_to_come_back_and_is_kept_over_all_subtasks(context, clock):
    source = GeneratorSource(lambda i: i, rate=10.0)
    readers = [source.reader(context(), [split]) for split in source.splits(2)]
    times: list[tuple[float, int]] = []
    start = clock.time
    while clock.time < start + 10:
        waits = []
        for reader in readers:
            while (polled := reader.poll(100)).batch is not None:
                times += [(clock.time - start, row) for row in polled.batch.rows]
            waits.append(polled.ready_at)
        assert min(waits) > clock.time
        clock.time = min(waits)
    assert 98 <= len(times) <= 102
    assert all(abs(when - number / 10) <= 0.1001 for when, number in times)


def test_at_a_high_rate_records_come_many_at_a_time(context, clock):
    source = GeneratorSource(lambda i: i, rate=100_000.0)
    reader = source.reader(context(), source.splits(1))
    end, polls, records = clock.time + 1, 0, 0
    while clock.time < end:
        polled = reader.poll(4096)
        polls += 1
        if polled.batch is None:
            clock.time = polled.ready_at
        else:
            records += len(polled.batch)
    assert 99_000 <= records <= 101_001
    assert polls < 300


def test_at_a_high_rate_a_poll_between_two_moments_makes_no_small_batch(context, clock):
    source = GeneratorSource(lambda i: i, rate=10_000.0)
    reader = source.reader(context(), source.splits(1))
    assert len(reader.poll(4096).batch) == 1
    polls = []
    for _ in range(80):
        clock.time += 0.002  # another event wakes the subtask
        polls.append(reader.poll(4096).batch)
    sizes = [len(batch) for batch in polls if batch is not None]
    assert min(sizes) >= 100
    assert 1_500 <= sum(sizes) <= 1_601


def test_small_slices_keep_a_high_rate(context, clock):
    source = GeneratorSource(lambda i: i, rate=10_000.0)
    reader = source.reader(context(), source.splits(1))
    records = 0
    end = clock.time + 1
    while clock.time < end:
        polled = reader.poll(7)
        if polled.batch is None:
            clock.time = polled.ready_at
        else:
            records += len(polled.batch)
    assert 9_900 <= records <= 10_001


def test_what_was_missed_in_a_long_pause_is_made_up_for_one_second_only(context, clock, drain):
    source = GeneratorSource(lambda i: i, rate=100.0)
    reader = source.reader(context(), source.splits(1))
    reader.poll(1000)
    clock.time += 3600
    assert len(reader.poll(1000).batch) == 100
    assert reader.poll(1000).batch is None
    clock.time += 0.1
    assert len(reader.poll(1000).batch) == 10


def test_restored_readers_keep_the_rate(context, clock):
    source = GeneratorSource(lambda i: i, rate=10.0)
    reader = source.reader(context(), source.splits(1))
    assert list(reader.poll(100).batch.rows) == [0]
    restored = source.reader(context(attempt=2), reader.snapshot())
    assert list(restored.poll(100).batch.rows) == [1]
    assert restored.poll(100).ready_at == pytest.approx(clock.time + 0.1)


def test_the_lag_is_the_number_of_records_that_are_left(context):
    source = GeneratorSource(lambda i: i, count=11)
    reader = source.reader(context(), source.splits(2))
    for left, splits in ((11, 2), (8, 2), (5, 2)):
        assert (reader.lag().records, reader.lag().splits) == (left, splits)
        reader.poll(3)
    restored = source.reader(context(attempt=2), reader.snapshot())
    assert restored.lag().records == 2
    while not restored.poll(1).finished:
        pass
    assert (restored.lag().records, restored.lag().splits) == (0, 0)


def test_without_a_count_the_lag_is_not_known(context):
    source = GeneratorSource(lambda i: i)
    assert source.reader(context(), source.splits(1)).lag() is None


def test_a_failing_function_is_named_with_its_number(context):
    source = GeneratorSource(lambda i: 1 // (3 - i), count=10)
    reader = source.reader(context(), source.splits(1))
    with pytest.raises(ConnectorError, match=r"failed for index 3: ZeroDivisionError"):
        reader.poll(10)


@pytest.mark.parametrize("count", [10, None])
def test_a_stop_iteration_of_the_function_is_a_failure_and_not_the_end(context, count):
    items = iter(range(5))
    source = GeneratorSource(lambda i: next(items), count=count)
    reader = source.reader(context(), source.splits(1))
    with pytest.raises(ConnectorError, match=r"failed for index 5: StopIteration"):
        reader.poll(10)


def test_settings_that_are_not_allowed_are_named():
    with pytest.raises(ConfigurationError, match="count=-1"):
        GeneratorSource(str, count=-1)
    for rate in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="rate="):
            GeneratorSource(str, rate=rate)
