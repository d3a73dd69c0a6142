from __future__ import annotations

import pytest

from penstock.runtime.errors import ConfigurationError, KeyTypeError
from penstock.runtime.state.key_groups import (
    KeyToSubtask,
    default_max_parallelism,
    key_group_array,
    key_group_of,
    key_group_range,
    subtask_of_key_group,
)


def test_many_keys_have_the_groups_of_each_alone() -> None:
    for keys in (["a", "b", "a"], list(range(-50, 50)), [1, "a", None, 2**80], []):
        assert key_group_array(keys, 77).tolist() == [key_group_of(key, 77) for key in keys]


def test_keys_spread_evenly_over_key_groups() -> None:
    for keys in (range(12_800), [f"key-{index}" for index in range(12_800)]):
        groups = key_group_array(list(keys), 128).tolist()
        counts = [groups.count(group) for group in range(128)]
        assert min(counts) > 50
        assert max(counts) < 160


def test_the_cache_gives_the_subtask_of_the_key_group() -> None:
    subtask_of = KeyToSubtask(3, 128)
    keys = [f"key-{index % 100}" for index in range(1000)]
    expected = [subtask_of_key_group(key_group_of(key, 128), 3, 128) for key in keys]
    assert [subtask_of[key] for key in keys] == expected
    assert subtask_of.subtasks_of(keys) == expected
    assert set(expected) == {0, 1, 2}


def test_the_cache_stays_within_its_limit_and_right() -> None:
    subtask_of = KeyToSubtask(5, 128, limit=10)
    fresh = KeyToSubtask(5, 128)
    for key in list(range(35)) * 2:
        assert subtask_of[key] == fresh[key]
        assert len(subtask_of) <= 10


def test_equal_keys_of_different_types_share_an_entry() -> None:
    subtask_of = KeyToSubtask(4, 128)
    assert len({subtask_of[1], subtask_of[True], subtask_of[1.0]}) == 1
    assert len(subtask_of) == 1


@pytest.mark.parametrize("bad", [[1], float("nan"), ("a", [1])])
def test_keys_that_can_not_be_keys_are_refused_by_name(bad: object) -> None:
    subtask_of = KeyToSubtask(4, 128)
    with pytest.raises(KeyTypeError, match="can't be a key"):
        subtask_of.subtasks_of(["fine", bad])


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 32_769), (-1, 4)])
def test_impossible_parallelisms_are_refused(parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(ConfigurationError, match="1 <= parallelism <= max_parallelism <= 32768"):
        key_group_range(0, parallelism, max_parallelism)
    with pytest.raises(ConfigurationError, match="is not possible"):
        KeyToSubtask(parallelism, max_parallelism)


def test_a_subtask_that_does_not_exist_has_no_range() -> None:
    with pytest.raises(ConfigurationError, match="no subtask 4 of 4"):
        key_group_range(4, 4, 128)


def test_there_is_no_default_for_more_subtasks_than_key_groups() -> None:
    assert default_max_parallelism(32_768) == 32_768
    with pytest.raises(ConfigurationError, match="is not possible"):
        default_max_parallelism(32_769)
