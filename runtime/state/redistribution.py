"""State for another parallelism: who gets which part of what the old subtasks wrote.

Operator state follows Flink's `RoundRobinOperatorStateRepartitioner`. The three modes:

* split: every value to exactly one new subtask. At the same parallelism everything stays where it was,
  however uneven. Otherwise the values of one state, in the order of the old subtasks, are cut into contiguous
  pieces, one for each new subtask. What does not divide evenly goes round, on from where the state before
  left off. So over all states no subtask gets more than one value more than another.
* union: every value to every new subtask.
* broadcast: every old subtask had the same values; each new one takes one old copy.

A subtask may not ask for a restored list before the next checkpoint. It then puts its *own part* of the list
into that checkpoint, unchanged. Of a union list that is what the old subtasks wrote whose place it has taken,
and not the whole list. So the list neither shrinks nor multiplies, whichever subtasks ask for it.

Keyed state is not touched here. A handle goes to every new subtask whose range overlaps its own, and that
subtask takes the keys that it owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.snapshot.handles import KeyedStateHandle, RedistributionMode
from penstock.runtime.state.key_groups import key_group_range

T = TypeVar("T")

#: The list states of one old subtask: how each is redistributed, and its values.
OldStates: TypeAlias = Mapping[str, tuple[RedistributionMode, Sequence[T]]]


def redistribute(old: Sequence[OldStates[T]], new_parallelism: int) -> list[dict[str, list[T]]]:
    """Share out the list states of an operator.

    Args:
        old: By old subtask, its states by name; a subtask without state has an empty mapping.
        new_parallelism: Number of new subtasks.

    Returns:
        By new subtask, its values by name. Every name that any old subtask had is there.

    Raises:
        CorruptSnapshotError: A name has different modes in different subtasks.

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
            every = _concatenate(lists)
            pieces = [list(every) for _ in new]
        elif mode is RedistributionMode.BROADCAST:
            pieces = _copies(lists, new_parallelism)
        elif len(old) == new_parallelism:
            pieces = [list(values or ()) for values in lists]
        else:
            every = _concatenate(lists)
            pieces = _split(every, new_parallelism, first_with_more)
            first_with_more = (first_with_more + len(every)) % new_parallelism
        for states, piece in zip(new, pieces, strict=True):
            states[name] = piece
    return new


def own_parts(old: Sequence[OldStates[T]], shares: Sequence[Mapping[str, list[T]]]) -> list[OldStates[T]]:
    """What each new subtask puts into a snapshot of lists that its operator has not asked for.

    Args:
        old: By old subtask, its states by name.
        shares: What `redistribute` made of them.

    Returns:
        By new subtask, its states by name.

    Example:
        >>> old = [{"seen": (RedistributionMode.UNION, "ab")}, {"seen": (RedistributionMode.UNION, "c")}]
        >>> [part["seen"][1] for part in own_parts(old, redistribute(old, 2))]
        [['a', 'b'], ['c']]
        >>> [part["seen"][1] for part in own_parts(old, redistribute(old, 1))]
        [['a', 'b', 'c']]
    """
    modes = _modes(old)
    parts: list[dict[str, tuple[RedistributionMode, Sequence[T]]]] = []
    for index, share in enumerate(shares):
        taken = [states for number, states in enumerate(old) if number * len(shares) // len(old) == index]
        own: dict[str, tuple[RedistributionMode, Sequence[T]]] = {}
        for name, mode in modes.items():
            is_union = mode is RedistributionMode.UNION
            lists = [states[name][1] for states in taken if name in states]
            own[name] = mode, _concatenate(lists) if is_union else share[name]
        parts.append(own)
    return [*parts]


def reassign_keyed(
    handles: Sequence[Sequence[KeyedStateHandle]],
    old_parallelism: int,
    new_parallelism: int,
    max_parallelism: int,
) -> list[list[KeyedStateHandle]]:
    """Give each new subtask the handles that hold keys of its range.

    Args:
        handles: By old subtask, its handles; a subtask without state has none.
        old_parallelism: With which they were written.
        new_parallelism: Number of new subtasks.
        max_parallelism: Number of key groups, then and now.

    Raises:
        ConfigurationError: A parallelism does not fit the number of key groups.
        CorruptSnapshotError: There are not `old_parallelism` old subtasks.
    """
    if len(handles) != old_parallelism:
        msg = f"a snapshot taken with parallelism {old_parallelism} has state of {len(handles)} subtasks"
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


def _concatenate(lists: Sequence[Sequence[T] | None]) -> list[T]:
    return [value for values in lists if values is not None for value in values]


def _copies(lists: Sequence[Sequence[T] | None], new_parallelism: int) -> list[list[T]]:
    """One old copy for each new subtask: its own where it had one, else another's, in turn."""
    holders = [values for values in lists if values is not None]
    copies = []
    for index in range(new_parallelism):
        own = lists[index] if index < len(lists) else None
        copies.append(list(holders[index % len(holders)] if own is None else own))
    return copies


def _split(values: Sequence[T], pieces: int, first_with_more: int) -> list[list[T]]:
    """Cut into contiguous pieces; those that get one more begin at `first_with_more` and go round."""
    size, more = divmod(len(values), pieces)
    split: list[list[T]] = []
    start = 0
    for index in range(pieces):
        end = start + size + ((index - first_with_more) % pieces < more)
        split.append(list(values[start:end]))
        start = end
    return split
