"""`map_async` in a harness: calls, order, batches, columns, tries, timeouts, restores."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import OperatorError, PenstockError, Retry, async_call
from penstock.operators import ArrowBatch
from penstock.testing import OperatorHarness

SECOND = 1_000_000


def calling(function: Any, **settings: Any) -> Any:
    return lambda stream: stream.map_async(function, id="calls", **settings)


def keyed(function: Any, **settings: Any) -> Any:
    return lambda stream: stream.key_by(lambda row: row[0]).map_async(function, id="calls", **settings)


async def after(seconds: float) -> float:
    """Answers after as many seconds as the record says."""
    await asyncio.sleep(seconds)
    return seconds


# -- order --------------------------------------------------------------------------------------------------


def test_results_leave_in_the_order_of_the_records() -> None:
    with OperatorHarness.of(calling(after)) as harness:
        harness.push([3, 1, 2], [30, 10, 20])
        assert harness.advance(2) == []
        assert harness.advance(1) == [3, 1, 2]
        assert [batch.timestamps for batch in harness.batches] == [[30, 10, 20]]


def test_results_without_order_leave_when_they_are_there() -> None:
    with OperatorHarness.of(calling(after, ordered=False)) as harness:
        harness.push([3, 1, 2])
        assert [harness.advance(1) for _ in range(3)] == [[1], [2], [3]]


@pytest.mark.parametrize("ordered", [True, False])
def test_watermark_and_status_wait_for_the_records_in_front_of_them(ordered: bool) -> None:
    with OperatorHarness.of(calling(after, ordered=ordered)) as harness:
        harness.push([2])
        harness.push_watermark(7)
        harness.push_status(idle=True)
        assert (harness.watermarks, harness.is_idle) == ((), False)
        harness.advance(2)
        assert (harness.outputs, harness.watermarks, harness.is_idle) == ([2], (7,), True)
        harness.push_watermark(8)
        assert harness.watermarks == (7, 8), "with an empty queue it passes"


def test_capacity_limits_the_calls_that_run() -> None:
    running = most = 0

    async def counted(seconds: float) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(seconds)
        running -= 1
        return seconds

    with OperatorHarness.of(calling(counted, capacity=3)) as harness:
        harness.push([1] * 8)
        assert harness.end_of_data() == [1] * 8
    assert most == 3


def test_calls_of_a_key_run_one_after_the_other_and_those_of_other_keys_meanwhile() -> None:
    begun: list[tuple[str, float]] = []

    async def seen(row: tuple[str, float]) -> tuple[str, float]:
        begun.append(row)
        await asyncio.sleep(row[1])
        return row

    with OperatorHarness.of(keyed(seen)) as harness:
        harness.push([("a", 5), ("a", 1), ("b", 2), ("a", 3)])
        assert begun == [("a", 5), ("b", 2)]
        assert harness.advance(10) == [("b", 2), ("a", 5), ("a", 1), ("a", 3)]
        assert begun == [("a", 5), ("b", 2), ("a", 1), ("a", 3)]


# -- batches and columns ------------------------------------------------------------------------------------


async def times_ten(numbers: list[int]) -> list[int]:
    await asyncio.sleep(1)
    return [10 * number for number in numbers]


def test_batch_is_called_when_it_is_full_or_has_lingered() -> None:
    sizes: list[int] = []

    async def measured(numbers: list[int]) -> list[int]:
        sizes.append(len(numbers))
        return numbers

    with OperatorHarness.of(calling(measured, batch=3, linger=timedelta(seconds=2))) as harness:
        assert harness.push([1, 2, 3, 4]) == [1, 2, 3]
        assert harness.advance(1.9) == []
        assert harness.advance(0.2) == [4]
    assert sizes == [3, 1]


def test_capacity_counts_batches() -> None:
    with OperatorHarness.of(calling(times_ten, batch=2, capacity=2)) as harness:
        harness.push([1, 2, 3, 4, 5])
        assert harness.advance(1) == [10, 20, 30, 40]
        assert harness.end_of_data() == [50]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([1], "it returned a list of length 1 for a batch of length 2"),
        (7, "it returned 7 for a batch of length 2"),
    ],
)
def test_batch_needs_a_result_for_each_record(answer: Any, said: str) -> None:
    async def wrong(numbers: list[int]) -> Any:
        return answer

    with OperatorHarness.of(calling(wrong, batch=2)) as harness, pytest.raises(OperatorError, match=said):
        harness.push([1, 2])


def test_columns_go_in_and_come_out_as_record_batches() -> None:
    async def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(0.1)
        return pa.record_batch({"n": pa.array([2 * n for n in batch["n"].to_pylist()])})

    with OperatorHarness.of(calling(doubled, batch_format="arrow", batch=2)) as harness:
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [1, 2, 3]}), pa.array([10, 20, 30])))
        harness.push([{"n": 4}])
        assert harness.end_of_data() == [{"n": 2}, {"n": 4}, {"n": 6}, {"n": 8}]
        columns = [batch for batch in harness.batches if isinstance(batch, ArrowBatch)]
        stamps = [batch.timestamps and batch.timestamps.to_pylist() for batch in columns]
        assert stamps == [[10, 20], [30], None]


def test_a_table_is_one_batch_also_without_rows() -> None:
    async def even(batch: pa.RecordBatch) -> pa.Table:
        await asyncio.sleep(0.1)
        table = pa.Table.from_batches([batch, batch])
        return table.filter(pc.equal(pc.bit_wise_and(table["n"], 1), 0))

    with OperatorHarness.of(calling(even, batch_format="arrow", batch=1)) as harness:
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [1, 2]})))
        assert harness.end_of_data() == [{"n": 2}, {"n": 2}]


def test_columns_in_flight_are_called_again_after_a_restore() -> None:
    async def same(batch: pa.RecordBatch) -> pa.RecordBatch:
        await asyncio.sleep(1)
        return batch

    build = calling(same, batch_format="arrow")
    with OperatorHarness.of(build) as harness:
        harness.push_batch(ArrowBatch(pa.record_batch({"n": [1, 2]}), pa.array([10, 20])))
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        assert harness.end_of_data() == [{"n": 1}, {"n": 2}]
        (batch,) = harness.batches
        assert isinstance(batch, ArrowBatch)
        assert batch.timestamps is not None
        assert batch.timestamps.to_pylist() == [10, 20]


# -- what the function may be -------------------------------------------------------------------------------


class Awaited:
    """Like the `ObjectRef` of Ray: it can be awaited and is no coroutine."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(1).__await__()
        return self.value


def test_plain_function_may_return_whatever_can_be_awaited() -> None:
    with OperatorHarness.of(calling(lambda row: Awaited(row + 1))) as harness:
        harness.push([1])
        assert harness.advance(1) == [2]


class Client:
    """A client that is opened and closed on the event loop."""

    log: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_open = False

    async def open(self, context: Any) -> None:
        await asyncio.sleep(1)
        self.is_open = True
        self.log.append(f"{self.name} opened in {context.operator_id}")

    async def __call__(self, row: int) -> str:
        assert self.is_open
        return f"{self.name} {row}"

    async def close(self) -> None:
        await asyncio.sleep(1)
        self.log.append(f"{self.name} closed")


def test_class_is_opened_before_the_first_call_and_closed_after_the_last_one() -> None:
    Client.log = []
    build = calling(Client, fn_constructor_args=("client",))
    with OperatorHarness.of(build) as harness:
        assert harness.push([1]) == []
        assert harness.advance(1) == ["client 1"]
        assert Client.log == ["client opened in calls"]
    assert Client.log == ["client opened in calls", "client closed"]


def test_failure_of_an_async_open_names_it() -> None:
    class Broken(Client):
        async def open(self, context: Any) -> None:
            raise ConnectionError("refused")

    with (
        OperatorHarness.of(calling(Broken, fn_constructor_args=("x",))) as harness,
        pytest.raises(OperatorError, match=r"map_async .*Broken.open .* failed: ConnectionError: refused"),
    ):
        harness.push([1])


# -- tries and timeouts -------------------------------------------------------------------------------------


def failing(times: int, error: type[Exception] = ConnectionError) -> Any:
    async def function(row: Any) -> Any:
        if async_call().attempt <= times:
            raise error(row)
        return row, async_call().attempt

    return function


def test_call_is_tried_again_after_growing_pauses() -> None:
    retry = Retry(attempts=4, delay=1, max_delay=2)
    with OperatorHarness.of(calling(failing(3), retry=retry)) as harness:
        assert harness.push(["a"]) == []
        assert harness.advance(2.4) == [], "pauses of at least 0.5, 1 and 1 seconds"
        assert harness.advance(2.6) == [("a", 4)]
        assert harness.statistics().extra["async_retries"] == 3


def test_pauses_of_two_calls_differ_and_those_of_one_call_are_always_the_same() -> None:
    retry = Retry(delay=1)
    pauses = [retry.pause_after(1, key) for key in ("a", "b", "a")]
    assert pauses[0] == pauses[2] != pauses[1]
    assert all(0.5 <= pause <= 1 for pause in pauses)


def test_last_failure_ends_the_job_with_the_users_line_and_the_record() -> None:
    with (
        OperatorHarness.of(calling(failing(9), retry=2)) as harness,
        pytest.raises(OperatorError, match=r"ConnectionError: a, at .*test_async_map.py:\d+ .*on record 'a'"),
    ):
        harness.push(["a"]) or harness.advance(1)


def test_other_errors_are_not_tried_again() -> None:
    retry = Retry(attempts=5, on=(TimeoutError,))
    with (
        OperatorHarness.of(calling(failing(1), retry=retry)) as harness,
        pytest.raises(OperatorError, match="ConnectionError"),
    ):
        harness.push(["a"])
    assert harness.statistics().extra["async_retries"] == 0


def test_timeout_covers_all_tries_and_says_so() -> None:
    with (
        OperatorHarness.of(calling(failing(99), retry=Retry(99, delay=1), timeout=3)) as harness,
        pytest.raises(OperatorError, match=r"no answer within 3 s in [234] tries"),
    ):
        harness.push(["a"]) or harness.advance(3)


async def instead(row: Any) -> Any:
    await asyncio.sleep(1)
    return "late", row


@pytest.mark.parametrize(("on_timeout", "waits"), [(lambda row: ("late", row), 0), (instead, 1)])
def test_on_timeout_gives_a_result_instead(on_timeout: Any, waits: float) -> None:
    with OperatorHarness.of(calling(after, timeout=2, on_timeout=on_timeout)) as harness:
        harness.push([1, 5])
        assert harness.advance(2 + waits) == [1, ("late", 5)]
        assert harness.statistics().extra["async_timeouts"] == 1


def test_timeout_error_of_the_function_itself_is_a_failure_like_others() -> None:
    with (
        OperatorHarness.of(calling(failing(1, TimeoutError), timeout=60, on_timeout=str)) as harness,
        pytest.raises(OperatorError, match="TimeoutError: a"),
    ):
        harness.push(["a"])


# -- restores -----------------------------------------------------------------------------------------------


def test_restored_queue_keeps_the_place_of_its_watermarks() -> None:
    with OperatorHarness.of(calling(after)) as harness:
        for second in (1, 2):
            harness.push([second])
            harness.push_watermark(second)
        harness.push([3])
        snapshot = harness.snapshot()
    with OperatorHarness.of(calling(after), restored=[snapshot]) as harness:
        seen = []
        for _ in range(3):
            harness.advance(1)
            seen.append((list(harness.outputs), harness.watermarks))
    assert seen == [([1], (1,)), ([1, 2], (1, 2)), ([1, 2, 3], (1, 2))]


@pytest.mark.parametrize("ordered", [True, False])
def test_records_in_flight_are_called_once_at_another_parallelism(ordered: bool) -> None:
    build = calling(after, ordered=ordered)
    snapshots = []
    for subtask in range(2):
        with OperatorHarness.of(build, subtask=subtask, parallelism=2) as harness:
            harness.push([1 + subtask, 3 + subtask, 5 + subtask])
            harness.push_watermark(10 + subtask)
            snapshots.append(harness.snapshot())
    for parallelism in (1, 3):
        rows: list[float] = []
        for subtask in range(parallelism):
            settings: Any = {"subtask": subtask, "parallelism": parallelism, "restored": snapshots}
            with OperatorHarness.of(build, **settings) as harness:
                rows += harness.end_of_data()
                assert harness.watermarks == (10,), "the lowest that both subtasks had reached"
        assert sorted(rows) == [1, 2, 3, 4, 5, 6]


def test_a_watermark_stays_behind_the_records_of_many_subtasks_after_a_second_restore() -> None:
    build = calling(after)
    snapshots = []
    for subtask in range(4):
        with OperatorHarness.of(build, subtask=subtask, parallelism=4) as harness:
            harness.push([1, 1, 9])
            harness.push_watermark(10)
            snapshots.append(harness.snapshot())
    with OperatorHarness.of(build, restored=snapshots) as harness:
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        harness.advance(1)
        assert (len(harness.outputs), harness.watermarks) == (8, ())
        harness.advance(8)
        assert (len(harness.outputs), harness.watermarks) == (12, (10,))


def test_keyed_records_in_flight_go_to_the_owner_of_their_key() -> None:
    build = keyed(lambda row: Awaited(row))
    records = [(key, number) for number in range(3) for key in "abcdef"]
    with OperatorHarness.of(build) as harness:
        harness.push(records)
        snapshot = harness.snapshot()
    rows = []
    for subtask in range(2):
        with OperatorHarness.of(build, subtask=subtask, parallelism=2, restored=[snapshot]) as harness:
            given = harness.end_of_data()
            assert all(harness.owns(key) for key, _ in given)
            assert given, "both own some"
            rows += given
    for key in "abcdef":
        assert [number for k, number in rows if k == key] == [0, 1, 2]
    assert len(rows) == len(records)


def test_answered_keys_are_gone_from_the_next_snapshot() -> None:
    build = keyed(lambda row: Awaited(row))
    with OperatorHarness.of(build) as harness:
        harness.push([("a", 1)])
        harness.complete_checkpoint(harness.snapshot())
        harness.advance(1)
        harness.push([("b", 2)])
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        assert harness.end_of_data() == [("b", 2)]


def test_stop_without_a_drain_keeps_the_queue_for_the_savepoint() -> None:
    with OperatorHarness.of(calling(after)) as harness:
        harness.push([5])
        snapshot = harness.snapshot()
        assert harness.outputs == []
    with OperatorHarness.of(calling(after), restored=[snapshot]) as harness:
        assert harness.advance(5) == [5]


def test_end_of_data_waits_for_all_answers() -> None:
    with OperatorHarness.of(calling(after)) as harness:
        harness.push([5, 1])
        assert harness.end_of_data() == [5, 1]


def test_end_of_data_says_when_an_answer_never_comes() -> None:
    async def never(row: Any) -> Any:
        await asyncio.get_running_loop().create_future()

    with (
        OperatorHarness.of(calling(never)) as harness,
        pytest.raises(PenstockError, match="waits for something that never comes"),
    ):
        harness.push([1]) or harness.end_of_data()


def test_counts_say_what_is_in_flight() -> None:
    with OperatorHarness.of(calling(after)) as harness:
        harness.push([1, 2])
        assert harness.statistics().extra["async_in_flight"] == 2
        harness.advance(2)
        assert harness.statistics().extra["async_in_flight"] == 0


def test_harness_runs_inside_of_another_event_loop() -> None:
    async def notebook() -> list[Any]:
        with OperatorHarness.of(calling(after)) as harness:
            harness.push([1])
            return harness.advance(1)

    assert asyncio.run(notebook()) == [1]


def test_exit_in_a_coroutine_is_a_failure_like_others() -> None:
    async def leaves(row: Any) -> Any:
        raise SystemExit(3)

    with (
        OperatorHarness.of(calling(leaves)) as harness,
        pytest.raises(OperatorError, match=r"it called sys.exit\(3\)"),
    ):
        harness.push([1])


def test_exit_in_a_task_of_a_coroutine_is_a_failure_like_others() -> None:
    async def exits(row: int) -> int:
        raise SystemExit(row)

    async def gathers(row: int) -> Any:
        return await asyncio.gather(exits(row))

    build = lambda rows: rows.map_async(gathers, id="calls")  # noqa: E731
    with (
        OperatorHarness.of(build) as harness,
        pytest.raises(OperatorError, match=r"it called sys.exit\(3\), which does not end the job"),
    ):
        harness.push([3])


def test_tasks_that_a_coroutine_has_begun_end_when_the_operator_is_closed() -> None:
    log: list[str] = []
    tasks = []

    async def refreshes() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            log.append("refresh ended")

    async def begins(row: int) -> int:
        tasks.append(asyncio.create_task(refreshes()))
        await asyncio.sleep(0)
        return row

    with OperatorHarness.of(lambda rows: rows.map_async(begins, id="calls")) as harness:
        assert harness.push([3]) == [3]
        assert log == []
    assert log == ["refresh ended"]


def test_connection_in_a_harness_is_refused_with_what_to_do() -> None:
    async def connects(row: Any) -> Any:
        await asyncio.open_connection("localhost", 1)

    with (
        OperatorHarness.of(calling(connects)) as harness,
        pytest.raises(
            OperatorError, match="a harness or a simulation has no network: give the function a client"
        ),
    ):
        harness.push([1])
