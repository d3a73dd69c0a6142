"""Lists, broadcast maps and raw state of one operator in one subtask.

`RawState` is encoded by the operator itself (Flink's raw operator state and raw keyed state). It may be in a
foreign format, such as an index or a model. The runtime stores and redistributes the bytes, and does not
decode them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    PenstockError,
    StateMismatchError,
)
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange, RedistributionMode
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.state.broadcast_state import BroadcastStateView
from penstock.runtime.state.declared_state import (
    DeclaredOperatorState,
    ListStateMode,
    OperatorListState,
    type_names,
)
from penstock.runtime.state.known_states import operator_states_of, set_views


@dataclass(frozen=True, slots=True)
class SavedList:
    """A named list of values in a snapshot; a value is never split. `of_type` is empty for any type."""

    values: Sequence[Any]
    mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE
    of_type: str = ""
    is_declared: bool = False


class ListStates:
    """The list states and broadcast states of one operator in one subtask, by name.

    A restored list that is not requested stays in every snapshot: the operator, or its next version, may
    request it later. For a union list, this subtask keeps only its own part (`own_parts`).

    Args:
        unasked: Mode and encoded values of this subtask's own part of each restored list.
        refusal: Reason why the operator can't have lists; empty if it can.
    """

    def __init__(
        self,
        unasked: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] | None = None,
        decode: Callable[[bytes], Any] = bytes,
        restored: Mapping[str, Sequence[Any]] | None = None,
        refusal: str = "",
    ) -> None:
        self._states: dict[str, DeclaredOperatorState] = {}
        self._declared: set[str] = set()
        self._unasked = dict(unasked or {})
        self._decode = decode
        self._restored = dict(restored or {})
        self._refusal = refusal

    def refuse(self, reason: str) -> None:
        """Refuse lists from now on, for a reason that says what to do."""
        self._refusal = reason

    def bind_declared(self, function: object) -> None:
        """Set the attributes of a function object to views of the lists that its class declares."""
        declared = operator_states_of(type(function))
        if not declared:
            return
        self._declared.update(state.name for state in declared.values())
        set_views(function, {attribute: self.ask(state) for attribute, state in declared.items()})

    def ask(self, wanted: DeclaredOperatorState) -> DeclaredOperatorState:
        state = self._states.get(wanted.name)
        if state is not None:
            _check_same(state, wanted)
            return state
        if self._refusal:
            raise ConfigurationError(self._refusal)
        name = wanted.name
        if name not in self._restored and wanted.renamed_from in self._restored:
            name = wanted.renamed_from
        saved = self._unasked.get(name)
        if saved is not None and saved[0] is not wanted.mode:
            msg = (
                f"list state {wanted.name!r} was saved with the mode {saved[0].value!r} and can't have "
                f"{wanted.mode.value!r}: request it with its old mode, or give the new list another name"
            )
            raise StateMismatchError(msg)
        state = self._states[wanted.name] = wanted.view(self._restored.pop(name, ()))
        self._unasked.pop(name, None)
        return state

    def let_broadcasts_change(self, *, allowed: bool) -> None:
        """Allow or forbid changes of broadcast states; allowed only for records of the broadcast stream."""
        for state in self._states.values():
            if isinstance(state, BroadcastStateView):
                state.can_change = allowed

    def saved(self) -> dict[str, SavedList]:
        """The lists for a snapshot: the requested ones, and restored ones that were not requested."""
        unasked = {
            name: SavedList(tuple(map(self._decode, values)), mode)
            for name, (mode, values) in self._unasked.items()
        }
        asked = {
            name: SavedList(state.saved_values(), state.mode, type_names(state.types), name in self._declared)
            for name, state in self._states.items()
        }
        return {**unasked, **asked}


def _check_same(known: DeclaredOperatorState, wanted: DeclaredOperatorState) -> None:
    if known.kind != wanted.kind:
        msg = f"{wanted.label} has the name of {known.label}: give it another name"
        raise ConfigurationError(msg)
    if known.mode is not wanted.mode:
        msg = (
            f"list state {known.name!r} already has the mode {known.mode.value!r} and can't have "
            f"{wanted.mode.value!r}"
        )
        raise ConfigurationError(msg)
    if wanted.types not in ((), known.types):
        msg = (
            f"list state {known.name!r} already holds {type_names(known.types) or 'values of any type'} and "
            f"can't be of type {type_names(wanted.types)}"
        )
        raise ConfigurationError(msg)


@dataclass(frozen=True, slots=True)
class RawState:
    """Encoded state of an operator in a snapshot.

    Attributes:
        operator: Parts of raw operator state; each goes to exactly one subtask on restore.
        keyed: Raw keyed state by key group; each goes to the subtask that owns the group.

    Example:
        >>> bool(RawState()), bool(RawState(keyed={3: b"index"}))
        (False, True)
    """

    operator: Sequence[bytes] = ()
    keyed: Mapping[int, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.operator or self.keyed)


class AsksForLists:
    """Methods of a context that return lists of the subtask by name."""

    __slots__ = ()

    @property
    @abstractmethod
    def _list_states(self) -> ListStates: ...

    def operator_list_state(
        self,
        name: str,
        mode: ListStateMode = "split_distribute",
        *,
        of_type: type | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> OperatorListState[Any]:
        """Return a list of this subtask that belongs to no key; always the same object for one name.

        Request it in `open` or later. A restored list that is not requested stays in every checkpoint. A
        function's class can also declare its lists; see `OperatorListState`.

        Args:
            name: Unique in the operator.
            mode: Redistribution on restore. `"split_distribute"` gives each value to one subtask. `"union"`
                gives each subtask all values. `"broadcast"` gives each subtask a copy of one subtask's list.
            of_type: The type of the values; by default any.
            migrate: Converts a restored value of another type to `of_type`.

        Raises:
            ConfigurationError: The mode is unknown, or the list has another mode or type.
            StateMismatchError: The job starts from a snapshot that holds the list with another mode or type.
        """
        some: Any = of_type
        declaration: Any = OperatorListState(some, mode=mode, name=name, migrate=migrate)
        view: Any = self._list_states.ask(declaration)
        return view  # type: ignore[no-any-return]


class RestoredRawState:
    """Restored raw state of a subtask, until its operator has read it (`was_read`)."""

    __slots__ = ("_raw", "was_read")

    def __init__(self, raw: RawState | None = None) -> None:
        self._raw = RawState() if raw is None else raw
        self.was_read = False

    def read(self) -> RawState:
        self.was_read = True
        return self._raw

    def with_unread(self, given: RawState) -> RawState:
        if self.was_read or not self._raw:
            return given
        both = sorted(set(self._raw.keyed).intersection(given.keyed))
        if both:
            msg = (
                f"snapshot_raw returned raw keyed state of key group {both[0]}, but the operator has not "
                "read the restored state of this group, which would be lost: read context.raw in open"
            )
            raise PenstockError(msg)
        return RawState((*self._raw.operator, *given.operator), {**self._raw.keyed, **given.keyed})


def write_raw_keyed(keyed: Mapping[int, bytes], files: StateFiles) -> tuple[KeyedStateHandle, ...]:
    if not keyed:
        return ()
    groups = KeyGroupRange(min(keyed), max(keyed))
    data: bytes = msgpack.packb([[group, keyed[group]] for group in sorted(keyed)])
    return (KeyedStateHandle(groups, (files.write(data),), len(keyed)),)


def read_raw_keyed(
    handles: Iterable[KeyedStateHandle], key_groups: KeyGroupRange, files: StateFiles
) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for handle in handles:
        for file in handle.files:
            try:
                pairs = msgpack.unpackb(files.read(file))
                found.update((group, data) for group, data in pairs if group in key_groups)
            except (TypeError, ValueError) as error:
                msg = f"the raw keyed state in {file} is damaged: {error}"
                raise CorruptSnapshotError(msg) from error
    return found
