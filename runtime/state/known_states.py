"""The states of one operator in one subtask: states that its functions use, and states in the snapshot.

A state is identified by its name. The rules for a program that starts from a savepoint:

* A state that the snapshot does not have begins empty.
* A state of the snapshot that the program does not use stays in every snapshot. It may be used later, at run
  time or by the next version.
* A state of another kind is refused. A snapshot has the kind of each state.
* A declared type must accept all saved values, including values saved without a declaration. The type's
  name does not matter: a base class fits. Values of another type are converted once by `migrate`, and then
  count as changed. Without `migrate` the state is refused.
* A subtask that has not used a state saves it as it was restored, with its old type and TTL. So the handles
  of one snapshot may differ, and a restore trusts a type only if all handles have it.
* A state with `renamed_from` takes over the state of the old name, unless a state of its new name was saved.

Before it deploys, the JobMaster also compares the states of the program with those of the snapshot. It warns
about differences, with the names of the states (`state_changes` in `restore.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.snapshot.handles import KeyedStateHandle, SavedState
from penstock.runtime.state.broadcast_state import BroadcastState
from penstock.runtime.state.declared_state import (
    MIGRATE,
    DeclaredOperatorState,
    DeclaredState,
    migrated,
    other_type,
    type_name,
    type_names,
)
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.time_to_live import StateTtl


class KnownStates:
    """Kinds and types of an operator's states."""

    def __init__(self) -> None:
        self._states: dict[str, SavedState] = {}
        self._saved_types: dict[str, str] = {}
        self._types: dict[str, tuple[type, ...]] = {}

    def restore(self, handles: Iterable[KeyedStateHandle]) -> None:
        every = list(handles)
        self._states = states_in(every)
        types: dict[str, set[str | None]] = {}
        for handle in every:
            known = dict(handle.types)
            for name in {*known, *(state.name for state in handle.states)}:
                types.setdefault(name, set()).add(known.get(name))
        # A type that not all handles have is unknown, so all values are checked.
        self._saved_types = {name: of for name, (of, *others) in types.items() if of and not others}

    def check_kind(self, declaration: KeyedState) -> None:
        """Refuse a state that was saved with another kind."""
        saved = self._states.get(declaration.name)
        if saved is not None and saved.kind not in ("", declaration.kind):
            msg = (
                f"state {declaration.name!r} is a {class_of(declaration.kind)}, but the snapshot that the "
                f"job starts from holds a {class_of(saved.kind)} of this name. Give the new state another "
                "name; the old state then stays unused"
            )
            raise StateMismatchError(msg)

    def declare(self, declaration: KeyedState, table: StateTable, *, is_declared: bool) -> None:
        """Register a state that a function uses; check or migrate its restored values."""
        if declaration.types:
            self._declare_types(declaration, table)
        name, kind = declaration.name, declaration.kind
        time = "" if declaration.ttl is None else declaration.ttl.time
        self._states[name] = SavedState(name, kind, is_declared, declaration.ttl is not None, time)

    def _declare_types(self, declaration: KeyedState, table: StateTable) -> None:
        types = declaration.types
        known = self._types.setdefault(table.name, types)
        if known != types:
            msg = (
                f"state {table.name!r} is declared as {type_names(known)} and as {type_names(types)}: "
                "all functions of an operator that use this state must declare the same type"
            )
            raise ConfigurationError(msg)
        saved = self._saved_types.get(table.name)
        if saved == type_names(types):
            return
        note = "" if saved is None else f" (declared as {saved} then)"
        if len(types) > 1:
            parts = ((key, part) for key, held in table.entries.items() for part in held)
            advice = "Declare the type of the saved map keys, or give the new state another name"
            _check(table, parts, types[0], note, "map keys of type ", advice)
        if declaration.migrate is None:
            _check(table, _values(table), types[-1], note, "", MIGRATE)
            return
        for entry, cell in table.cells():
            value = cell if table.lifetime is None else cell[1]
            new = migrated(table.name, value, types[-1], declaration.migrate, table.key_of(entry))
            if new is not value:
                new = own_copy(new)  # the function may keep what it returns
                table.put(entry, new if table.lifetime is None else (cell[0], new))

    def without_stamps(self, handle: KeyedStateHandle) -> dict[str, bool]:
        """Return the states whose entries in this handle need new stamps.

        A value is true if the entries already have stamps, but of another kind of time.
        """
        saved = {state.name: state for state in handle.states if state.has_stamps}
        return {
            name: name in saved
            for name, state in self._states.items()
            if state.has_stamps and (name not in saved or _differ(state.time, saved[name].time))
        }

    def has_stamps(self, name: str) -> bool:
        return name in self._states and self._states[name].has_stamps

    def has_other_time(self, name: str, ttl: StateTtl) -> bool:
        """Return whether a state has stamps of another kind of time than `ttl` uses."""
        return self.has_stamps(name) and _differ(self._states[name].time, ttl.time)

    def is_nested(self, name: str) -> bool:
        return name in self._states and self._states[name].kind in ("list", "map")

    def rename(self, before: str, name: str) -> bool:
        """Rename a restored state; return whether the new name was unknown before."""
        if name in self._states:
            return False
        if before in self._saved_types:
            self._saved_types[name] = self._saved_types.pop(before)
        if before in self._states:
            self._states[name] = replace(self._states.pop(before), name=name)
        return True

    @property
    def lists(self) -> list[str]:
        return [state.name for state in self._states.values() if state.kind == "list"]

    def types(self) -> tuple[tuple[str, str], ...]:
        """Return each state with the name of its type; an unused state keeps its saved type."""
        declared = {name: type_names(types) for name, types in self._types.items()}
        return tuple(sorted({**self._saved_types, **declared}.items()))

    def states(self) -> tuple[SavedState, ...]:
        return tuple(sorted(self._states.values(), key=lambda state: state.name))


def states_in(handles: Iterable[KeyedStateHandle]) -> dict[str, SavedState]:
    """Merge the states of handles, by name.

    Handles of one snapshot may differ: a subtask that has not used a state saves it as it was restored.
    """
    found: dict[str, SavedState] = {}
    for state in (state for handle in handles for state in handle.states):
        known = found.get(state.name, state)
        found[state.name] = replace(
            state,
            kind=state.kind or known.kind,
            is_declared=state.is_declared or known.is_declared,
            has_stamps=state.has_stamps or known.has_stamps,
            time=state.time or known.time,
        )
    return found


def _differ(time: str, other: str) -> bool:
    return bool(time and other and time != other)


def _values(table: StateTable) -> Iterator[tuple[Any, Any]]:
    for entry, cell in table.cells():
        yield table.key_of(entry), cell if table.lifetime is None else cell[1]


def _check(
    table: StateTable, pairs: Iterator[tuple[Any, Any]], of_type: type, note: str, what: str, advice: str
) -> None:
    wrong: dict[type, Any] = {}
    for key, value in pairs:
        kind = type(value)
        if kind not in wrong and not issubclass(kind, of_type):
            wrong[kind] = key
    if wrong:
        example = f"{note}, for example for key {next(iter(wrong.values()))!r:.100}"
        raise other_type(table.name, f"{what}{type_name(of_type)}", wrong, example, advice)


def class_of(kind: str) -> str:
    return f"{kind.capitalize()}State"


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A declared state in plain values, for reports and for comparing a program with a snapshot.

    Attributes:
        kind: `value`, `list`, `map`, `reducing` or `aggregating`; for operator state the redistribution mode:
            `split_distribute`, `union` or `broadcast`.
        of_type: Names of the declared types; empty without any.
        renamed_from: Earlier name of the state; empty for none.
        ttl: Lifetime of entries as text; empty without a TTL.
    """

    name: str
    kind: str
    of_type: str = ""
    renamed_from: str = ""
    ttl: str = ""
    is_keyed: bool = True


def infos_of(kind: type) -> tuple[StateInfo, ...]:
    """Return the states that a class declares, in plain values; runs no code of the class."""
    return tuple(map(_info, _declared(kind).values()))


def _info(state: DeclaredState) -> StateInfo:
    types, renamed_from = type_names(state.types), state.renamed_from or ""
    if isinstance(state, KeyedState):
        return StateInfo(state.name, state.kind, types, renamed_from, str(state.ttl or ""))
    assert isinstance(state, DeclaredOperatorState), "there is keyed state and operator state"
    return StateInfo(state.name, state.mode.value, types, renamed_from, is_keyed=False)


def states_of(kind: type) -> dict[str, KeyedState]:
    """Return the keyed states that a class and its bases declare, by attribute."""
    return {name: state for name, state in _declared(kind).items() if isinstance(state, KeyedState)}


def operator_states_of(kind: type) -> dict[str, DeclaredOperatorState]:
    return {
        name: state for name, state in _declared(kind).items() if isinstance(state, DeclaredOperatorState)
    }


def broadcast_names_of(kind: type) -> list[str]:
    """Return the names of the broadcast states that a class declares."""
    return [s.name for s in operator_states_of(kind).values() if isinstance(s, BroadcastState)]


def set_views(function: object, views: Mapping[str, DeclaredState]) -> None:
    attributes = getattr(function, "__dict__", None)
    if attributes is None:
        msg = (
            f"{type(function).__name__} declares state and has __slots__, so its objects have no "
            "room for the views: remove __slots__, or add '__dict__' to them"
        )
        raise ConfigurationError(msg)
    attributes.update(views)


def _declared(kind: type) -> dict[str, DeclaredState]:
    found: dict[str, DeclaredState] = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, DeclaredState):
                found[attribute] = value
            else:
                found.pop(attribute, None)
    by_name: dict[str, str] = {}
    for attribute, state in found.items():
        other = by_name.setdefault(state.name, attribute)
        if other != attribute:
            state.refuse(
                f"{kind.__name__}.{other} and {kind.__name__}.{attribute} have the same name; give each "
                "state a name of its own"
            )
    return found
