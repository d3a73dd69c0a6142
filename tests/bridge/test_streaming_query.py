"""How the query of a streaming DataFrame ends for the depots of its job; what Spark does is on_spark's."""

from __future__ import annotations

from typing import Any

from depot_frames import Asked
from unsteady import Unsteady

from penstock.bridge.depot import Depot
from penstock.bridge.depot_failures import DIED
from penstock.bridge.frame_store import FrameStore
from penstock.bridge.hand_over import Depots
from penstock.bridge.spark_stream_in import QueryEnd, StreamingQuery


class Ended(StreamingQuery):
    """A query whose only run has ended already."""

    def __init__(self, end: QueryEnd) -> None:
        no_rows: Any = None
        super().__init__(no_rows, "rows", "", {}, restarts=0)
        self._end = end

    def _run_once(self, depots: Depots) -> QueryEnd:
        return self._end


def served(end: QueryEnd, files: FrameStore) -> Depot:
    """A depot that can be asked all the time, when its query has ended so."""
    depot = Depot(0, files, staged=True)
    Ended(end).serve(Depots("the-job", ("a",), (Unsteady(Asked(depot), {}),), "", b""))
    return depot


def test_a_query_that_ends_ends_the_stream_and_one_that_was_stopped_for_its_job_does_not(
    files: FrameStore,
) -> None:
    """Also when the look that had it stopped was wrong, and the next one sees the job."""
    assert served(QueryEnd(), files).is_complete
    stopped = served(QueryEnd(stopped_here=True), files)
    assert (stopped.is_complete, stopped.failure) == (False, DIED)
