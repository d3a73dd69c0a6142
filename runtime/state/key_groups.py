"""Key groups: the smallest pieces in which keyed state moves (Flink's `KeyGroupRangeAssignment`).

The stable hash of a key decides its key group, one of `max_parallelism`. Each subtask owns a contiguous range
of key groups. Rescaling changes only the ranges. The mappings in both directions must agree:
`subtask_of_key_group` rounds down, so the first group of a range is rounded up.

**Rescaling** (`redistribute`). Operator state follows Flink's
`RoundRobinOperatorStateRepartitioner`. The three modes:

* split: every value goes to exactly one new subtask. At the same parallelism every subtask keeps its values,
  even if some subtasks have more than others. Otherwise the values of one state, in the order of the old
  subtasks, are cut into contiguous pieces, one for each new subtask. If they don't divide evenly, some pieces
  have one more value. The longer pieces go to subtasks in turn, starting where the previous state stopped. So
  the totals of any two subtasks differ by at most one value.
* union: every value goes to every new subtask.
* broadcast: every old subtask had the same values; each new subtask takes one old copy.

While an operator has not used a restored list, each subtask puts its *own part* of the list into checkpoints.
In a union list this is the part of the old subtasks that the new one replaces. So the list neither shrinks
nor multiplies, whichever subtasks use it.

A handle of keyed state goes to every new subtask whose range overlaps the handle's range. A subtask takes
only its own keys from it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import ConfigurationError, CorruptSnapshotError, KeyTypeError, StateMismatchError
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange, RedistributionMode
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys
from penstock.runtime.state.stable_hash_arrays import stable_hashes

#: The largest number of key groups (Flink's upper bound); a key group fits into 16 bits.
MAX_KEY_GROUPS: Final = 1 << 15

_LEAST_DEFAULT: Final = 1 << 7


def key_group_of(key: Any, max_parallelism: int) -> int:
    return stable_hash(key) % max_parallelism


def key_group_array(keys: Sequence[Any], max_parallelism: int) -> NDArray[np.uint16]:
    return (stable_hashes(keys) % np.uint64(max_parallelism)).astype(np.uint16)


#: Types of keys whose hash and bytes don't depend on the program; a tuple depends on its parts.
LASTING_KEYS: Final = frozenset(
    {
        str,
        int,
        bool,
        bytes,
        float,
        type(None),
        datetime,
        date,
        time,
        timedelta,
        UUID,
        Decimal,
        Fraction,
        tuple,
    }
)


def check_restored_keys(
    table: str, keys: Sequence[Any], groups: NDArray[np.uint16], max_parallelism: int
) -> None:
    """Refuse restored keys that no record can find again, because their class has changed."""
    if types_of_keys(keys) <= LASTING_KEYS:
        return
    changed = np.flatnonzero(key_group_array(keys, max_parallelism) != groups)
    if len(changed):
        raise changed_key(table, keys[int(changed[0])])


def changed_key(table: str, key: Any) -> StateMismatchError:
    return StateMismatchError(
        f"state {table!r} was saved under the key {reprlib.repr(key)}, whose class has changed since: its "
        "fields, their order, or the name or value of an enum's member. No record would find this state. "
        "Restore the old class, and use keys of plain values in new programs; or give the operator a new id, "
        "so that it starts without this state"
    )


def subtask_of_key_group(key_group: int, parallelism: int, max_parallelism: int) -> int:
    return key_group * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= subtask < parallelism:
        msg = f"there is no subtask {subtask} of {parallelism}; they are numbered from 0"
        raise ConfigurationError(msg)
    first = -(-subtask * max_parallelism // parallelism)
    last = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(first, last)


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    if not 1 <= parallelism <= max_parallelism <= MAX_KEY_GROUPS:
        msg = (
            f"parallelism {parallelism} with max_parallelism {max_parallelism} is not possible; "
            f"give 1 <= parallelism <= max_parallelism <= {MAX_KEY_GROUPS}"
        )
        raise ConfigurationError(msg)


def default_max_parallelism(parallelism: int) -> int:
    """The smallest power of two with room to grow by half; at least 128, at most 32,768.

    Example:
        >>> default_max_parallelism(4), default_max_parallelism(1000)
        (128, 2048)
    """
    check_parallelism(parallelism, MAX_KEY_GROUPS)
    with_room = 1 << (parallelism + parallelism // 2 - 1).bit_length()
    return min(max(with_room, _LEAST_DEFAULT), MAX_KEY_GROUPS)


class KeyToSubtask(dict[Any, int]):
    """Cache of the subtask of each key; a full cache is cleared.

    Keys that are equal (`1` and `True`) share an entry, which is right: they share their hash.
    """

    def __init__(self, parallelism: int, max_parallelism: int, limit: int = 1 << 16) -> None:
        super().__init__()
        check_parallelism(parallelism, max_parallelism)
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._limit = limit

    def __missing__(self, key: Any) -> int:
        subtask = subtask_of_key_group(
            key_group_of(key, self._max_parallelism), self._parallelism, self._max_parallelism
        )
        if len(self) >= self._limit:
            self.clear()
        self[key] = subtask
        return subtask

    def subtasks_of(self, keys: Sequence[Any]) -> list[int]:
        try:
            return list(map(self.__getitem__, keys))
        except KeyTypeError:
            raise
        except TypeError:
            # The dictionary reports only "unhashable type"; `stable_hash` names the value and an alternative.
            for key in keys:
                stable_hash(key)
            raise


T = TypeVar("T")

#: The list states of one old subtask by name: redistribution mode and values.
OldStates: TypeAlias = Mapping[str, tuple[RedistributionMode, Sequence[T]]]


def redistribute(old: Sequence[OldStates[T]], new_parallelism: int) -> list[dict[str, list[T]]]:
    """Assign the list states of the old subtasks to the new subtasks, by name.

    Example:
        >>> split = RedistributionMode.SPLIT_DISTRIBUTE
        >>> redistribute([{"splits": (split, "abc")}, {"splits": (split, "d")}], 3)
        [{'splits': ['a', 'b']}, {'splits': ['c']}, {'splits': ['d']}]
    """
    new: list[dict[str, list[T]]] = [{} for _ in range(new_parallelism)]
    first_with_more = 0
    for name, mode in _modes(old).items():
        lists = [subtask[name][1] if name in subtask else None for subtask in old]
        if mode is RedistributionMode.UNION:
            every = [value for values in lists for value in values or ()]
            pieces = [list(every) for _ in new]
        elif mode is RedistributionMode.BROADCAST:
            pieces = _copies(lists, new_parallelism)
        elif len(old) == new_parallelism:
            pieces = [list(values or ()) for values in lists]
        else:
            every = [value for values in lists for value in values or ()]
            pieces = split_evenly(every, new_parallelism, first_with_more)
            first_with_more = (first_with_more + len(every)) % new_parallelism
        for states, piece in zip(new, pieces, strict=True):
            states[name] = piece
    return new


def own_parts(old: Sequence[OldStates[T]], shares: Sequence[Mapping[str, list[T]]]) -> list[OldStates[T]]:
    """Return the lists that each new subtask puts into a snapshot until its operator uses them."""
    modes = _modes(old)
    parts: list[dict[str, tuple[RedistributionMode, Sequence[T]]]] = []
    for index, share in enumerate(shares):
        taken = [states for number, states in enumerate(old) if number * len(shares) // len(old) == index]
        own: dict[str, tuple[RedistributionMode, Sequence[T]]] = {}
        for name, mode in modes.items():
            lists = [states[name][1] for states in taken if name in states]
            whole = [value for values in lists for value in values]
            own[name] = mode, whole if mode is RedistributionMode.UNION else share[name]
        parts.append(own)
    return [*parts]


def reassign_keyed(
    handles: Sequence[Sequence[KeyedStateHandle]],
    old_parallelism: int,
    new_parallelism: int,
    max_parallelism: int,
) -> list[list[KeyedStateHandle]]:
    """Give each new subtask the old handles that hold keys of its range."""
    if len(handles) != old_parallelism:
        msg = f"a snapshot of parallelism {old_parallelism} has a wrong number of subtasks: {len(handles)}"
        raise CorruptSnapshotError(msg)
    every = [handle for of_subtask in handles for handle in of_subtask]
    ranges = [key_group_range(index, new_parallelism, max_parallelism) for index in range(new_parallelism)]
    return [[handle for handle in every if len(handle.key_groups.intersection(own))] for own in ranges]


def _modes(old: Sequence[OldStates[Any]]) -> dict[str, RedistributionMode]:
    modes: dict[str, RedistributionMode] = {}
    for states in old:
        for name, (mode, _) in states.items():
            if modes.setdefault(name, mode) is not mode:
                msg = f"list state {name!r} is {modes[name].value} in one subtask and {mode.value} in another"
                raise CorruptSnapshotError(msg)
    return dict(sorted(modes.items()))


def _copies(lists: Sequence[Sequence[T] | None], new_parallelism: int) -> list[list[T]]:
    """Return a copy for each new subtask: its old copy if it had one, else other subtasks' copies in turn."""
    holders = [values for values in lists if values is not None]
    copies = []
    for index in range(new_parallelism):
        own = lists[index] if index < len(lists) else None
        copies.append(list(holders[index % len(holders)] if own is None else own))
    return copies


def split_evenly(values: Sequence[T], pieces: int, first_with_more: int = 0) -> list[list[T]]:
    """Cut values into contiguous pieces; the longer pieces begin at `first_with_more` and wrap around."""
    size, more = divmod(len(values), pieces)
    split: list[list[T]] = []
    start = 0
    for index in range(pieces):
        end = start + size + ((index - first_with_more) % pieces < more)
        split.append(list(values[start:end]))
        start = end
    return split
