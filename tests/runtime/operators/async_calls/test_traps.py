"""Traps of asynchronous calls, each met by a test of its name. Those of Ray Serve are in `tests/on_ray`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import OperatorError, Retry, async_call
from penstock.testing import OperatorHarness


def calling(function: Any, **settings: Any) -> Any:
    return lambda stream: stream.map_async(function, id="calls", **settings)


@pytest.mark.parametrize("pause", [1.9, 2.0, 2.1])
def test_a_timeout_races_a_retry(pause: float) -> None:
    """The timeout, the end of a pause and the failure of a try come together: there is one outcome."""
    ended: list[str] = []

    async def tried(row: str) -> str:
        try:
            await asyncio.sleep(1)
            if async_call().attempt == 1:
                raise ConnectionError
        finally:
            ended.append(f"try {async_call().attempt}")
        return row

    class Even(Retry):
        def pause_after(self, attempt: int, key: str) -> float:
            return pause

    settings: Any = {"retry": Even(5), "timeout": 4, "on_timeout": lambda row: f"{row} timed out"}
    with OperatorHarness.of(calling(tried, **settings)) as harness:
        harness.push(["a"])
        assert harness.advance(100) == ["a" if pause < 2 else "a timed out"]
        assert harness.advance(100) == []
        assert harness.outputs == ["a" if pause < 2 else "a timed out"]
    assert ended == ["try 1", "try 2"], "no try begins or ends after the outcome"


@pytest.mark.parametrize("ordered", [True, False])
def test_restore_with_a_full_queue_and_one_waiting_does_not_deadlock(ordered: bool) -> None:
    async def answered(row: int) -> int:
        await asyncio.sleep(1)
        return row

    build = calling(answered, capacity=2, ordered=ordered)
    with OperatorHarness.of(build) as harness:
        harness.push([1, 2, 3])
        assert harness.statistics().extra["async_in_flight"] == 3, "two are called, and one waits"
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        harness.push([4])
        assert harness.end_of_data() == [1, 2, 3, 4]


def test_restore_of_several_full_queues_in_one_subtask_does_not_deadlock() -> None:
    async def answered(row: int) -> int:
        await asyncio.sleep(1)
        return row

    build = calling(answered, capacity=2)
    snapshots = []
    for subtask in range(4):
        with OperatorHarness.of(build, subtask=subtask, parallelism=4) as harness:
            harness.push([10 * subtask, 10 * subtask + 1, 10 * subtask + 2])
            snapshots.append(harness.snapshot())
    with OperatorHarness.of(build, restored=snapshots) as harness:
        assert sorted(harness.end_of_data()) == [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]


def test_unordered_means_between_watermarks() -> None:
    async def answered(seconds: int) -> int:
        await asyncio.sleep(seconds)
        return seconds

    with OperatorHarness.of(calling(answered, ordered=False)) as harness:
        harness.push([3, 1])
        harness.push_watermark(100)
        harness.push([2, 0])
        assert harness.outputs == []
        assert harness.advance(2) == [1], "what came behind the watermark waits for what came in front of it"
        assert harness.watermarks == ()
        assert harness.advance(1) == [3, 0, 2]
        assert harness.watermarks == (100,)


def test_inputs_are_not_reused_while_the_coroutine_runs() -> None:
    """A try sees its record as it came, though the caller or an earlier try has changed it."""
    seen: list[Any] = []

    async def changing(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(dict(row))
        row["n"] = -1
        await asyncio.sleep(1)
        seen.append(dict(row))
        if async_call().attempt == 1:
            raise ConnectionError
        return row

    given = [{"n": 1}]
    with OperatorHarness.of(calling(changing, retry=2)) as harness:
        harness.push(given)
        given[0]["n"] = 99
        snapshot = harness.snapshot()
        assert harness.advance(10) == [{"n": -1}]
    assert seen == [{"n": 1}, {"n": -1}, {"n": 1}, {"n": -1}]
    seen.clear()
    with OperatorHarness.of(calling(changing, retry=2), restored=[snapshot]) as harness:
        harness.push([])
    assert seen[0] == {"n": 1}


def test_results_are_not_changed_after_they_were_given() -> None:
    kept: list[Any] = []

    async def keeping(row: int) -> list[int]:
        kept.append([row])
        for earlier in kept[:-1]:
            earlier.append(row)
        return kept[-1]

    with OperatorHarness.of(calling(keeping)) as harness:
        assert harness.push([1, 2, 3]) == [[1], [2], [3]]


def test_asyncio_timeout_is_used_and_not_wait_for() -> None:
    """A call runs in one task. An answer that comes with the timeout has one outcome."""
    tasks: list[Any] = []
    releases: list[asyncio.Future[str]] = []

    async def answered(row: str) -> str:
        tasks.append(asyncio.current_task())
        releases.append(asyncio.get_running_loop().create_future())
        tasks.append(asyncio.current_task())
        asyncio.get_running_loop().call_later(2, releases[0].set_result, row)
        answer = await releases[0]
        tasks.append(asyncio.current_task())
        return answer

    settings: Any = {"timeout": 2, "on_timeout": lambda row: f"{row} timed out"}
    with OperatorHarness.of(calling(answered, **settings)) as harness:
        harness.push(["a"])
        assert harness.advance(5) in (["a"], ["a timed out"])
        assert len(harness.outputs) == 1
    assert len(set(map(id, tasks))) == 1


def test_cancelled_try_that_answers_after_all_gives_one_outcome() -> None:
    async def stubborn(row: str) -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "after all"
        return row

    with OperatorHarness.of(calling(stubborn, timeout=1, retry=3, on_timeout=str)) as harness:
        harness.push(["a"])
        assert harness.advance(20) == ["after all"]


@pytest.mark.parametrize("retry", [None, 3])
def test_cancelled_try_that_fails_with_another_error_has_timed_out(retry: int | None) -> None:
    """Clients turn a cancellation into an error of their own; it is no reason for another try."""
    tried: list[int] = []

    async def translating(row: str) -> str:
        tried.append(async_call().attempt)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise ConnectionError from None
        return row

    settings: Any = {"timeout": 1, "retry": retry, "on_timeout": lambda row: f"{row} timed out"}
    with OperatorHarness.of(calling(translating, **settings)) as harness:
        harness.push(["a"])
        assert harness.advance(100) == ["a timed out"]
        assert harness.statistics().extra["async_timeouts"] == 1
    assert tried == [1]


def test_a_request_may_run_twice_with_one_idempotency_key() -> None:
    """Tries of a call have one key, also after a restore, at any parallelism; others have their own."""
    served: dict[str, Any] = {}

    async def serve(row: str) -> str:
        key = async_call().idempotency_key
        assert served.setdefault(key, row) == row, "a key belongs to one request"
        await asyncio.sleep(1)
        if async_call().attempt == 1:
            raise ConnectionError
        return key

    build = calling(serve, retry=2)
    with OperatorHarness.of(build, parallelism=2) as harness:
        harness.push(["a", "b", "a"])
        snapshot = harness.snapshot()
        harness.push(["d"])
    assert len(served) == 4, "equal records have keys of their own"
    for parallelism in (1, 2, 3):
        again: list[str] = []
        for subtask in range(parallelism):
            place: Any = {"subtask": subtask, "parallelism": parallelism}
            with OperatorHarness.of(build, restored=[snapshot, empty(build)], **place) as harness:
                again += harness.end_of_data()
        assert sorted(again) == sorted(list(served)[:3])
    with OperatorHarness.of(build, restored=[snapshot, empty(build)], parallelism=2) as harness:
        harness.push(["d"])
        harness.push(["e"])
        assert harness.end_of_data() == list(served)[:5], "a record that is read again keeps its key"
    with OperatorHarness.of(build, restored=[snapshot, empty(build)], parallelism=2) as harness:
        harness.push(["f"])
        harness.end_of_data()
    assert len(served) == 6, "one that comes in its place does not get its key"


def test_without_checkpoints_a_record_never_gets_the_key_of_another_record() -> None:
    async def key(row: str) -> str:
        return async_call().idempotency_key

    found: list[str] = []
    for rows in (["a", "b"], ["b", "a"]):
        with OperatorHarness.of(calling(key), transactional=False) as harness:
            found += harness.push(rows)
    assert len(set(found)) == 4, "a job without checkpoints reads all records again, in another order"


def empty(build: Any) -> Any:
    with OperatorHarness.of(build, subtask=1, parallelism=2) as harness:
        return harness.snapshot()


def test_keys_of_a_keyed_stream_do_not_depend_on_the_parallelism() -> None:
    async def key(row: str) -> tuple[str, str]:
        return row, async_call().idempotency_key

    def build(stream: Any) -> Any:
        return stream.key_by(str).map_async(key, id="calls")

    found: list[dict[str, str]] = []
    for parallelism in (1, 2):
        found.append({})
        for subtask in range(parallelism):
            with OperatorHarness.of(build, subtask=subtask, parallelism=parallelism) as harness:
                found[-1].update(harness.push([row for row in "abcdefgh" if harness.owns(row)]))
    assert found[0] == found[1]
    assert len(set(found[0].values())) == 8


def test_a_failure_behind_others_is_not_lost() -> None:
    async def fails(row: int) -> int:
        await asyncio.sleep(row)
        raise ValueError(row)

    with (
        OperatorHarness.of(calling(fails)) as harness,
        pytest.raises(OperatorError, match=r"ValueError: 1, at .*on record 1"),
    ):
        harness.push([2, 1, 3]) or harness.advance(5)
