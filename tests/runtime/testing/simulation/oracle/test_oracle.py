"""The oracle finds what is wrong with the output of a job, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_jobs.oracle import Oracle
from simulated_jobs.records import (
    ExternalSystem,
    ProtocolViolation,
    Record,
    digest_after,
    key_of,
)
from simulated_jobs.scenario import HandlerMode, Scenario
from simulated_jobs.shape import OperatorKind, OperatorShape, Shape, VertexShape
from simulated_jobs.timed import UNIT

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.job_graph import Partitioning
from penstock.runtime.testing.simulation.world.agenda import Conditions, Happening
from penstock.runtime.testing.simulation.world.faults import FaultKind, Moment, PlannedFault

SOURCE, KEYED, SINK = 0, 1, 2
RECORDS = 4


def scenario(mode: HandlerMode = HandlerMode.ALIGNED) -> Scenario:
    """One source of four records, one keyed operator with one key, one sink."""
    source = VertexShape((OperatorShape(SOURCE, OperatorKind.SOURCE),), 1, counts=(RECORDS,))
    chain = (OperatorShape(KEYED, OperatorKind.KEYED, keys=1), OperatorShape(SINK, OperatorKind.SINK))
    keyed = VertexShape(chain, 1, ((0, Partitioning.KEY_GROUP),))
    conditions = Conditions(dict.fromkeys(Happening, 1), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0)
    return Scenario(0, mode, Shape((source, keyed), 7), JobConfig(), conditions, ())


def output(order: list[int]) -> list[Record]:
    """The keyed operator's output for the records in this order."""
    records: list[Record] = []
    digest = 0
    for number, index in enumerate(order, 1):
        origin, way = (SOURCE, 0, index), ((SOURCE, 0, 0),)
        digest = digest_after(digest, origin, way)
        key = key_of(origin, KEYED, 1, text=False)
        records.append((origin, (*way, (KEYED, 0, 0, key, number, digest))))
    return records


def problems(*transactions: list[Record], mode: HandlerMode = HandlerMode.ALIGNED) -> str:
    system = ExternalSystem()
    for number, rows in enumerate(transactions):
        key = (f"sink-{SINK}", 0, "job", 1, number)
        system.stage(key, rows)
        system.commit(key)
    return "; ".join(Oracle(scenario(mode), system).check_finished(None))


def test_right_output_has_no_problems() -> None:
    records = output([0, 1, 2, 3])
    assert problems(records[:2], records[2:]) == ""


def test_lost_record_is_found() -> None:
    assert "sink-2 lost 1 records" in problems(output([0, 1, 3]))


def test_record_that_counts_twice_is_found() -> None:
    records = output([0, 1, 2, 3])
    assert "committed twice 2 records" in problems(records, records[2:])


def test_at_least_once_allows_what_counts_twice_and_nothing_lost() -> None:
    records = output([0, 1, 2, 3])
    assert problems(records, records, mode=HandlerMode.AT_LEAST_ONCE) == ""
    assert "lost" in problems(records[1:], mode=HandlerMode.AT_LEAST_ONCE)


def test_disorder_within_a_channel_is_found() -> None:
    assert "behind" in problems(output([0, 2, 1, 3]))


def test_state_that_forgot_a_record_is_found() -> None:
    right, wrong = output([0, 1, 2, 3]), output([1, 2, 3])
    assert "is not the recomputed one" in problems(
        right[:1]
        + [
            (origin, (*route[:-1], (*route[-1][:4], route[-1][4] + 1, route[-1][5])))
            for origin, route in wrong
        ]
    )


def test_record_that_nobody_sent_is_found() -> None:
    assert "committed what nobody sent" in problems(output([0, 1, 2, 3, 4]))


def test_committing_what_was_removed_is_a_violation() -> None:
    system = ExternalSystem()
    system.stage(("out", 0, "job", 1, 0), [])
    system.remove_older_than("out", "job", attempt=2)
    with pytest.raises(ProtocolViolation, match="never staged or has been removed"):
        system.commit(("out", 0, "job", 1, 0))


def test_committing_again_changes_nothing() -> None:
    system = ExternalSystem()
    system.stage(("out", 0, "job", 1, 0), output([0]))
    system.commit(("out", 0, "job", 1, 0))
    system.commit(("out", 0, "job", 1, 0))
    assert system.rows("out") == output([0])
    assert system.statistics().repeated == 1


def test_world_outside_that_is_taken_back_shows_what_an_older_checkpoint_covers() -> None:
    system = ExternalSystem()
    for checkpoint_id in (1, 2, 3):
        key = ("out", 0, "job", 1, checkpoint_id)
        system.stage(key, output([0])[:1])
        system.commit(key, checkpoint_id)
    assert system.take_back_to(2) == 2
    assert [key[4] for key in system.transactions("out")] == [1]
    system.commit(("out", 0, "job", 1, 2), 2)
    assert [key[4] for key in system.transactions("out")] == [1, 2], "the checkpoint covers it"


# -- windows ------------------------------------------------------------------------------------------------

TIMES, WINDOW, LAST = 1, 2, 3


def with_windows(*faults: PlannedFault, mode: HandlerMode = HandlerMode.ALIGNED) -> Scenario:
    """One source of four records with event time, and windows of three with one key."""
    times = OperatorShape(TIMES, OperatorKind.TIMES, length=1)
    source = VertexShape((OperatorShape(SOURCE, OperatorKind.SOURCE), times), 1, counts=(RECORDS,))
    window = OperatorShape(WINDOW, OperatorKind.WINDOW, keys=1, length=3)
    chain = VertexShape((window, OperatorShape(LAST, OperatorKind.SINK)), 1, ((0, Partitioning.KEY_GROUP),))
    return replace(scenario(mode), shape=Shape((source, chain), 7), faults=faults)


def fired(start: int, *indices: int) -> list[Record]:
    """A window that came out with these records."""
    step = (WINDOW, 0, 0, start * UNIT, len(indices))
    return [((SOURCE, 0, index), ((SOURCE, 0, 0), step)) for index in indices]


def problems_of_windows(records: list[Record], *faults: PlannedFault, mode: HandlerMode) -> str:
    system = ExternalSystem()
    system.stage((f"sink-{LAST}", 0, "job", 1, 0), records)
    system.commit((f"sink-{LAST}", 0, "job", 1, 0))
    return "; ".join(Oracle(with_windows(*faults, mode=mode), system).check_finished(None))


def test_whole_windows_have_no_problems() -> None:
    assert problems_of_windows(fired(0, 0, 1, 2) + fired(3, 3), mode=HandlerMode.ALIGNED) == ""


def test_a_window_that_came_out_in_two_parts_is_found() -> None:
    records = fired(0, 0, 1) + fired(0, 2) + fired(3, 3)
    found = problems_of_windows(records, mode=HandlerMode.ALIGNED)
    assert found == "operator 2, key 0: the window at 0 came out with 1, then 2 of its 3 records"
    drained = PlannedFault(FaultKind.DRAINED, Moment.MOVE, 1)
    assert problems_of_windows(records, drained, mode=HandlerMode.ALIGNED) == ""
    assert problems_of_windows(records, mode=HandlerMode.AT_LEAST_ONCE) == ""


def test_a_late_record_of_a_window_is_lost() -> None:
    found = problems_of_windows(fired(0, 0, 1) + fired(3, 3), mode=HandlerMode.ALIGNED)
    assert "sink-3 lost 1 records" in found
    assert "the window at 0 came out with 2 of its 3 records" in found


def test_a_record_in_a_wrong_window_is_found() -> None:
    found = problems_of_windows(fired(0, 0, 1, 2, 3), mode=HandlerMode.ALIGNED)
    assert "the window at 0 came out with 4 of its 3 records" in found
