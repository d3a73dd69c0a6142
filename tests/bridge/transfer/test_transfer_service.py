"""The depots of a job, as the program with the Spark session sees them when Ray can't reach one."""

from __future__ import annotations

from typing import Any

import pytest
from buffer_frames import Asked, frame
from unsteady import DEAD, Unsteady

from penstock.actors.shared.answers import NoAnswerError
from penstock.bridge.receive_buffer.frame_store import FrameStore
from penstock.bridge.receive_buffer.receive_buffer import Depot
from penstock.bridge.transfer import transfer_service as hand_over
from penstock.bridge.transfer.query_position import MisplacedQueryError
from penstock.bridge.transfer.transfer_service import Depots


@pytest.fixture
def two(files: FrameStore) -> list[Depot]:
    """Both have prepared micro-batch 0, and the first one has closed it."""
    opened = [Depot(index, files, staged=True) for index in (0, 1)]
    for depot in opened:
        depot.begin(0, "run")
        depot.push(frame(0, 0))
        assert depot.prepare(0, "run", {0: (1, 1)}) is None
    opened[0].close(0)
    return opened


@pytest.fixture
def fresh(files: FrameStore) -> list[Depot]:
    return [Depot(index, files, staged=True) for index in (0, 1)]


class NoRows:
    """A DataFrame whose partitions are all empty."""

    def mapInArrow(self, function: Any, schema: str) -> NoRows:  # Spark's name
        return self

    def collect(self) -> list[Any]:
        return []


def over(depots: list[Depot], lost: dict[str, int], **options: Any) -> Depots:
    handles = tuple(Unsteady(Asked(depot), dict(lost), **options) for depot in depots)
    return Depots("the-job", ("a", "b"), handles, "", b"")


def test_only_dead_depots_are_gone(two: list[Depot], monkeypatch: pytest.MonkeyPatch) -> None:
    assert over(two, {"statistics": 1}).are_there()
    assert not over(two, {"statistics": 1}, error=DEAD).are_there()
    monkeypatch.setattr(hand_over, "_LOOK", 0.01)
    assert over(two, {"statistics": 1}, error=None).are_there(), "silent, and alive for all that is known"
    assert over(two, {"statistics": 1_000}).are_there()


@pytest.mark.parametrize("arrives", [False, True])
def test_a_micro_batch_that_is_closed_in_one_depot_is_closed_in_all_through_lost_calls(
    two: list[Depot], arrives: bool
) -> None:
    not_computed: Any = None
    assert not over(two, {"stage": 1, "close": 1}, arrives=arrives).hand_over(not_computed, 0)
    assert [depot.epochs.newest for depot in two] == [0, 0]


def test_the_end_reaches_every_depot_or_is_an_error(two: list[Depot]) -> None:
    over(two, {"finish": 1}).finish()
    assert all(depot.is_complete for depot in two)
    away = over(two, {"finish": 1_000})
    with pytest.raises(NoAnswerError, match=r"the depots of job the-job: no answer"):
        away._ask([away.handles[0].finish.remote], 0.01)


def test_a_failure_reaches_every_depot_that_lives(two: list[Depot]) -> None:
    dead = Unsteady(Asked(two[0]), {"fail": 1}, error=DEAD)
    alive = Unsteady(Asked(two[1]), {"fail": 1})
    Depots("the-job", ("a", "b"), (dead, alive), "", b"").fail("no luck")
    assert two[1].failure == "no luck"


@pytest.mark.parametrize(
    ("snapshot", "what"),
    [
        (0, r"with micro-batch 2, and the job's snapshot ends behind micro-batch 0: Spark .* micro-batch 1,"),
        (-1, r"the job's snapshot ends before micro-batch 0: Spark has committed micro-batches 0 to 1, and"),
        (4, r"hands over micro-batch 2, and the job has later ones"),
    ],
)
def test_a_query_that_goes_on_elsewhere_than_the_snapshot_ends_hands_nothing_over(
    fresh: list[Depot], snapshot: int, what: str
) -> None:
    for depot in fresh:
        depot.epochs.resume(snapshot)
    not_computed: Any = None
    with pytest.raises(MisplacedQueryError, match=what):
        over(fresh, {}).hand_over(not_computed, 2)
    assert [depot.epochs.newest for depot in fresh] == [snapshot, snapshot]


def test_a_snapshot_between_two_readers_of_a_micro_batch_is_refused(fresh: list[Depot]) -> None:
    first, second = fresh
    first.epochs.resume(5)
    second.epochs.resume(4)
    not_computed: Any = None
    with pytest.raises(MisplacedQueryError, match="was taken amidst micro-batch 5: some readers are"):
        over(fresh, {}).hand_over(not_computed, 5)


def test_a_job_without_a_snapshot_is_told_what_it_does_not_have(
    fresh: list[Depot], caplog: pytest.LogCaptureFixture
) -> None:
    no_rows: Any = NoRows()
    assert over(fresh, {}).hand_over(no_rows, 3)
    assert over(fresh, {}).hand_over(no_rows, 4)
    (said,) = caplog.messages
    assert said.startswith(
        "job the-job was started without a snapshot of its query, and begins with micro-batch 3: Spark has "
        "committed micro-batches 0 to 2, whose rows are not in the state of this job. If they "
        "are to be, start it with restore_from="
    )
