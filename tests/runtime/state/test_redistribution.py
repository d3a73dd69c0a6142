from __future__ import annotations

import pytest

from penstock.runtime.errors import ConfigurationError, CorruptSnapshotError
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange, RedistributionMode
from penstock.runtime.state.key_groups import key_group_range, reassign_keyed, redistribute

SPLIT = RedistributionMode.SPLIT_DISTRIBUTE
UNION = RedistributionMode.UNION
BROADCAST = RedistributionMode.BROADCAST


def test_every_subtask_has_every_name_also_without_values() -> None:
    assert redistribute([{"s": (SPLIT, [1])}, {}, {}], 2) == [{"s": [1]}, {"s": []}]
    assert redistribute([{"s": (UNION, [])}], 2) == [{"s": []}, {"s": []}]


def test_nothing_comes_of_nothing() -> None:
    assert redistribute([], 2) == [{}, {}]
    assert redistribute([{}, {}], 1) == [{}]


def test_a_subtask_without_its_copy_of_a_broadcast_state_gets_another_ones() -> None:
    assert redistribute([{}, {"b": (BROADCAST, [1, 2])}], 2) == [{"b": [1, 2]}, {"b": [1, 2]}]


def test_new_subtasks_do_not_share_lists() -> None:
    new = redistribute([{"u": (UNION, [1]), "b": (BROADCAST, [2])}], 2)
    new[0]["u"].append(9)
    new[0]["b"].append(9)
    assert new[1] == {"b": [2], "u": [1]}


def test_a_state_with_two_modes_is_corrupt() -> None:
    with pytest.raises(CorruptSnapshotError, match="'s' is union in one subtask and broadcast in another"):
        redistribute([{"s": (UNION, [1])}, {"s": (BROADCAST, [1])}], 1)


def handles(parallelism: int) -> list[list[KeyedStateHandle]]:
    return [[KeyedStateHandle(key_group_range(i, parallelism, 128), ())] for i in range(parallelism)]


def test_the_same_parallelism_gives_each_subtask_its_own_handle() -> None:
    assert reassign_keyed(handles(3), 3, 3, 128) == handles(3)


def test_a_new_subtask_gets_all_handles_that_meet_its_range() -> None:
    ranges = [[handle.key_groups for handle in new] for new in reassign_keyed([*handles(2), []], 3, 3, 128)]
    low, high = KeyGroupRange(0, 63), KeyGroupRange(64, 127)
    assert ranges == [[low], [low, high], [high]]


def test_a_wrong_number_of_old_subtasks_is_corrupt() -> None:
    with pytest.raises(CorruptSnapshotError, match="parallelism 3 has a wrong number of subtasks: 2"):
        reassign_keyed(handles(2), 3, 2, 128)


def test_more_subtasks_than_key_groups_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="parallelism 129"):
        reassign_keyed(handles(2), 2, 129, 128)
