"""The receive buffer of a partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.receive_buffer_actor import PartitionAssignment


def test_partitions_that_are_pushed_at_the_same_time_are_spread_evenly() -> None:
    assignment = PartitionAssignment(3)
    assert [assignment.assign(0, partition, [0, 0, 0]) for partition in range(6)] == [0, 1, 2, 0, 1, 2]


def test_a_reader_with_a_long_partition_gets_no_other_while_the_rest_is_idle() -> None:
    assignment = PartitionAssignment(2)
    assert assignment.assign(0, 0, [0, 0]) == 0
    for partition in range(1, 5):
        assert assignment.assign(0, partition, [0, 0]) == 1
        assignment.done(0, partition)


def test_of_readers_with_equally_many_partitions_the_one_with_fewer_waiting_bytes_is_chosen() -> None:
    assignment = PartitionAssignment(3)
    assert assignment.assign(0, 0, [7, 5, 9]) == 1
    assert assignment.assign(0, 1, [7, 0, 9]) == 0


def test_every_attempt_of_a_partition_goes_to_the_same_buffer() -> None:
    assignment = PartitionAssignment(2)
    first = assignment.assign(0, 5, [3, 1])
    assignment.done(0, 5)
    assert assignment.assign(0, 5, [0, 1_000]) == first == 1


def test_an_epoch_that_is_run_again_is_assigned_as_before_and_the_next_one_anew() -> None:
    assignment = PartitionAssignment(2)
    assert assignment.assign(7, 0, [1, 0]) == 1
    assert assignment.assign(7, 0, [0, 1]) == 1
    assert assignment.assign(8, 0, [0, 1]) == 0


def test_a_late_copy_of_an_old_epoch_changes_nothing() -> None:
    assignment = PartitionAssignment(2)
    assignment.assign(1, 0, [0, 0])
    assert assignment.assign(0, 3, [0, 0]) == 1
    assignment.done(0, 0)
    assert assignment.assign(1, 1, [5, 0]) == 1, "receive buffer 0 still takes partition 0"
    assert assignment.assign(1, 2, [0, 5]) == 0


@given(
    buffers=st.integers(1, 5),
    asks=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=40),
)
def test_an_assignment_never_changes_and_no_buffer_is_left_out(
    buffers: int, asks: list[tuple[int, int, bool]]
) -> None:
    assignment = PartitionAssignment(buffers)
    answers: dict[int, int] = {}
    pushing: dict[int, int] = {}
    for partition, load, ends in asks:
        counts = [sum(d == buffer for d in pushing.values()) for buffer in range(buffers)]
        buffer = assignment.assign(0, partition, [load * i for i in range(buffers)])
        if partition not in answers:
            assert counts[buffer] == min(counts)
            pushing[partition] = buffer
        assert answers.setdefault(partition, buffer) == buffer
        if ends:
            assignment.done(0, partition)
            pushing.pop(partition, None)


def test_what_was_assigned_is_known_until_the_next_epoch_begins() -> None:
    assignment = PartitionAssignment(2)
    assert assignment.assigned(0, 0) is None
    buffer = assignment.assign(0, 0, [0, 0])
    assignment.done(0, 0)
    assert assignment.assigned(0, 0) == buffer
    assignment.assign(1, 1, [0, 0])
    assert assignment.assigned(0, 0) is None
    assert assignment.assigned(1, 0) is None
