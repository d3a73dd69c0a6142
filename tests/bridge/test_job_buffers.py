"""The receive buffers of a job, as the program with the Spark session sees them when Ray can't reach one."""

from __future__ import annotations

from typing import Any

import pytest
from buffer_frames import Asked, frame
from unsteady import DEAD, Unsteady

from penstock.actors.shared.actor_calls import NoAnswerError
from penstock.bridge import transfer_service
from penstock.bridge.frame_store import FrameStore
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.transfer_service import JobBuffers, QueryPositionError


@pytest.fixture
def two(files: FrameStore) -> list[ReceiveBuffer]:
    """Both have prepared micro-batch 0, and the first one has closed it."""
    opened = [ReceiveBuffer(index, files, staged=True) for index in (0, 1)]
    for buffer in opened:
        buffer.begin(0, "run")
        buffer.push(frame(0, 0))
        assert buffer.prepare(0, "run", {0: (1, 1)}) is None
    opened[0].close(0)
    return opened


@pytest.fixture
def fresh(files: FrameStore) -> list[ReceiveBuffer]:
    return [ReceiveBuffer(index, files, staged=True) for index in (0, 1)]


class NoRows:
    """A DataFrame whose partitions are all empty."""

    schema = ()

    def toDF(self, *names: str) -> NoRows:
        return self

    def mapInArrow(self, function: Any, schema: str) -> NoRows:  # Spark's name
        return self

    def collect(self) -> list[Any]:
        return []


def over(buffers: list[ReceiveBuffer], lost: dict[str, int], **options: Any) -> JobBuffers:
    handles = tuple(Unsteady(Asked(buffer), dict(lost), **options) for buffer in buffers)
    return JobBuffers("the-job", ("a", "b"), handles, "", b"")


def test_only_dead_buffers_are_gone(two: list[ReceiveBuffer], monkeypatch: pytest.MonkeyPatch) -> None:
    assert over(two, {"statistics": 1}).are_there()
    assert not over(two, {"statistics": 1}, error=DEAD).are_there()
    monkeypatch.setattr(transfer_service, "_LOOK", 0.01)
    assert over(two, {"statistics": 1}, error=None).are_there(), "silent, and alive for all that is known"
    assert over(two, {"statistics": 1_000}).are_there()


@pytest.mark.parametrize("arrives", [False, True])
def test_a_micro_batch_that_is_closed_in_one_buffer_is_closed_in_all_through_lost_calls(
    two: list[ReceiveBuffer], arrives: bool
) -> None:
    not_computed: Any = None
    assert not over(two, {"stage": 1, "close": 1}, arrives=arrives).transfer(not_computed, 0)
    assert [buffer.epochs.newest for buffer in two] == [0, 0]


def test_the_end_reaches_every_buffer_or_is_an_error(two: list[ReceiveBuffer]) -> None:
    over(two, {"finish": 1}).finish()
    assert all(buffer.is_complete for buffer in two)
    away = over(two, {"finish": 1_000})
    with pytest.raises(NoAnswerError, match=r"the receive buffers of job the-job: no answer"):
        away.ask("finish", seconds=0.01)


def test_a_failure_reaches_every_buffer_that_lives(two: list[ReceiveBuffer]) -> None:
    dead = Unsteady(Asked(two[0]), {"fail": 1}, error=DEAD)
    alive = Unsteady(Asked(two[1]), {"fail": 1})
    JobBuffers("the-job", ("a", "b"), (dead, alive), "", b"").fail("no luck")
    assert two[1].failure == "no luck"


@pytest.mark.parametrize(
    ("snapshot", "what"),
    [
        (0, r"with micro-batch 2, but the job's snapshot ends after micro-batch 0: Spark .* micro-batch 1,"),
        (-1, r"the job's snapshot ends before micro-batch 0: Spark has committed micro-batches 0 to 1, and"),
        (4, r"sends micro-batch 2, but the job already has later ones"),
    ],
)
def test_a_query_that_does_not_continue_where_the_snapshot_ends_transfers_nothing(
    fresh: list[ReceiveBuffer], snapshot: int, what: str
) -> None:
    for buffer in fresh:
        buffer.epochs.resume(snapshot)
    not_computed: Any = None
    with pytest.raises(QueryPositionError, match=what):
        over(fresh, {}).transfer(not_computed, 2)
    assert [buffer.epochs.newest for buffer in fresh] == [snapshot, snapshot]


def test_a_snapshot_between_two_readers_of_a_micro_batch_is_refused(fresh: list[ReceiveBuffer]) -> None:
    first, second = fresh
    first.epochs.resume(5)
    second.epochs.resume(4)
    not_computed: Any = None
    with pytest.raises(QueryPositionError, match="was taken inside micro-batch 5: some readers are"):
        over(fresh, {}).transfer(not_computed, 5)


def test_a_job_without_a_snapshot_is_warned_of_the_micro_batches_that_it_lacks(
    fresh: list[ReceiveBuffer], caplog: pytest.LogCaptureFixture
) -> None:
    no_rows: Any = NoRows()
    assert over(fresh, {}).transfer(no_rows, 3)
    assert over(fresh, {}).transfer(no_rows, 4)
    (said,) = caplog.messages
    assert said.startswith(
        "job the-job was started without a snapshot of its query, and begins with micro-batch 3: Spark has "
        "committed micro-batches 0 to 2, whose rows are not in the state of this job. To include them, "
        "start the job with restore_from="
    )
