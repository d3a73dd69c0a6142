"""The end of a streaming DataFrame's query, as the receive buffers of its job see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from buffer_frames import Asked
from unsteady import DEAD, Unsteady

from penstock.bridge.frame_store import FrameStore
from penstock.bridge.from_structured_streaming import QueryEnd, StreamingQuery
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import DIED
from penstock.bridge.transfer_service import JobBuffers


class Session:
    """All that is asked of a Spark session here: whether it is stopped."""

    def __init__(self) -> None:
        self.sparkContext = self._jsc = self
        self.stopped = False

    def sc(self) -> Session:
        return self

    def isStopped(self) -> bool:  # Spark's name
        return self.stopped


class Rows:
    """A streaming DataFrame, and each of its micro-batches."""

    schema = "id long"

    def __init__(self) -> None:
        self.sparkSession = Session()


class Ended(StreamingQuery):
    """A query whose runs have ended already."""

    def __init__(self, *ends: QueryEnd, restarts: int = 0) -> None:
        rows: Any = Rows()
        super().__init__(rows, "rows", "", {}, restarts, rest=self._rests)
        self.ends = list(ends)
        self.pauses: list[float] = []
        #: What happens while it rests.
        self.meanwhile: Callable[[], None] = list

    def _rests(self, seconds: float, is_wanted: Callable[[], bool]) -> bool:
        self.pauses.append(seconds)
        self.meanwhile()
        return is_wanted()

    def stop_session(self) -> None:
        self._df.sparkSession.stopped = True

    def _run_once(self, buffers: JobBuffers) -> QueryEnd:
        return self.ends.pop(0)


class BeginsAt(StreamingQuery):
    """A query that gives one micro-batch and fails when that can't be transferred, in each of its runs."""

    isActive = False  # Spark's name

    def __init__(self, number: int, restarts: int) -> None:
        rows: Any = Rows()
        super().__init__(rows, "rows", "", {}, restarts)
        self.number, self.runs = number, 0

    def _start(self, buffers: JobBuffers) -> Any:
        self.runs += 1
        self.error: Exception | None = None
        try:
            self._transfer(buffers, self._df, self.number)
        except Exception as error:
            self.error = error
        return self

    def exception(self) -> Exception | None:
        return self.error


@pytest.fixture
def buffer(files: FrameStore) -> ReceiveBuffer:
    return ReceiveBuffer(0, files, staged=True)


def around(buffer: ReceiveBuffer) -> JobBuffers:
    """Can be asked all the time."""
    return JobBuffers("the-job", ("a",), (Unsteady(Asked(buffer), {}),), "", b"")


def test_a_query_that_ends_ends_the_stream(buffer: ReceiveBuffer) -> None:
    Ended(QueryEnd()).serve(around(buffer))
    assert buffer.is_complete


def test_a_query_that_was_stopped_for_its_job_does_not_end_the_stream(buffer: ReceiveBuffer) -> None:
    """Also when the look that had it stopped was wrong, and the next one sees the job."""
    Ended(QueryEnd(stopped_here=True)).serve(around(buffer))
    assert (buffer.is_complete, buffer.failure) == (False, DIED)


def test_a_failure_that_another_run_would_repeat_is_reported_at_once(buffer: ReceiveBuffer) -> None:
    query = Ended(QueryEnd("Spark goes on elsewhere", is_final=True), QueryEnd(), restarts=3)
    query.serve(around(buffer))
    assert len(query.ends) == 1, "it was not started again"
    assert buffer.failure == "Spark goes on elsewhere"


def test_a_query_that_leaves_a_micro_batch_out_fails_for_good(buffer: ReceiveBuffer) -> None:
    buffer.epochs.resume(0)
    query = BeginsAt(2, restarts=3)
    query.serve(around(buffer))
    assert query.runs == 1
    assert buffer.failure is not None
    assert buffer.failure.startswith(
        "the query continues with micro-batch 2, but the job's snapshot ends after"
    )


AWAY = QueryEnd("the storage is away")


def test_a_query_rests_longer_before_each_restart_until_it_is_not_started_again(
    buffer: ReceiveBuffer,
) -> None:
    query = Ended(*[AWAY] * 5, restarts=3)
    query.serve(around(buffer))
    assert query.pauses == [1, 2, 4]
    assert len(query.ends) == 1
    assert buffer.failure is not None
    assert buffer.failure.startswith(
        "the storage is away. The micro-batches before the failure are committed"
    )


def test_a_query_that_gets_on_when_it_is_started_again_does_not_fail(buffer: ReceiveBuffer) -> None:
    query = Ended(AWAY, AWAY, QueryEnd(), restarts=3)
    query.serve(around(buffer))
    assert (buffer.is_complete, buffer.failure) == (True, None)


def test_a_query_does_not_start_again_when_its_job_ends_while_it_rests(buffer: ReceiveBuffer) -> None:
    handle = Unsteady(Asked(buffer), lost := {"statistics": 0}, error=DEAD)
    query = Ended(AWAY, QueryEnd(), restarts=3)
    query.meanwhile = lambda: lost.update(statistics=1)
    query.serve(JobBuffers("the-job", ("a",), (handle,), "", b""))
    assert len(query.ends) == 1
    assert (buffer.is_complete, buffer.failure) == (False, DIED)


def test_a_query_whose_session_is_stopped_while_it_rests_says_so(buffer: ReceiveBuffer) -> None:
    query = Ended(AWAY, QueryEnd("no session"), restarts=3)
    query.meanwhile = query.stop_session
    query.serve(around(buffer))
    assert buffer.failure is not None
    assert buffer.failure.startswith("the Spark session was stopped while its query ran")
    assert query.pauses == [1]
