"""The states of one operator in one subtask: those that its functions use, and those in the snapshot.

A state is identified by its name. A snapshot records the kind of each state, so that a changed kind is
noticed. The rules between a savepoint and a program:

* A state that the snapshot does not have begins empty.
* A state of the snapshot that the program does not use stays in every snapshot. It may be used later, at run
  time or by the next version.
* A state whose kind differs is refused. One whose type differs is refused or migrated (`declared_state.py`).
* A state with `renamed_from` takes over the state of the old name, unless its new name was saved already.

The JobMaster compares the same lists before it deploys, and warns by name (`restore/state_changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.snapshot.handles import KeyedStateHandle, SavedState
from penstock.runtime.state.declared_state import DeclaredState, DeclaredTypes, type_names
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.operator_list_state import OperatorListState
from penstock.runtime.state.state_table import StateTable


class KnownStates:
    """Kinds and types of an operator's states."""

    def __init__(self) -> None:
        self._types = DeclaredTypes()
        self._states: dict[str, SavedState] = {}

    def restore(self, handles: Iterable[KeyedStateHandle]) -> None:
        every = list(handles)
        self._types.restore(every)
        self._states = {state.name: state for handle in every for state in handle.states}

    def check_kind(self, declaration: KeyedState) -> None:
        """Check that a state has the kind that was saved.

        Raises:
            StateMismatchError: The kind differs.
        """
        saved = self._states.get(declaration.name)
        if saved is not None and saved.kind not in ("", declaration.kind):
            msg = (
                f"state {declaration.name!r} is a {class_of(declaration.kind)}, but the snapshot that the "
                f"job starts from holds a {class_of(saved.kind)} of this name. Give the new state another "
                "name; the old one then stays unused"
            )
            raise StateMismatchError(msg)

    def declare(self, declaration: KeyedState, table: StateTable, *, is_declared: bool) -> None:
        """Note that a function uses a state.

        Raises:
            ConfigurationError: Another declaration of the state has another type.
            StateMismatchError: Restored values have another type and can't be migrated.
        """
        if declaration.types:
            part_type = declaration.types[0] if len(declaration.types) > 1 else None
            self._types.declare(table, declaration.types[-1], part_type, declaration.migrate)
        name, kind = declaration.name, declaration.kind
        self._states[name] = SavedState(name, kind, is_declared, declaration.ttl is not None)

    def has_stamps(self, name: str) -> bool:
        return name in self._states and self._states[name].has_stamps

    def is_nested(self, name: str) -> bool:
        return name in self._states and self._states[name].kind in ("list", "map")

    def rename(self, before: str, name: str) -> bool:
        """Rename a restored state; return whether the new name was unknown before."""
        if name in self._states:
            return False
        self._types.rename(before, name)
        if before in self._states:
            self._states[name] = replace(self._states.pop(before), name=name)
        return True

    @property
    def lists(self) -> list[str]:
        return [state.name for state in self._states.values() if state.kind == "list"]

    def types(self) -> tuple[tuple[str, str], ...]:
        return self._types.names()

    def states(self) -> tuple[SavedState, ...]:
        return tuple(sorted(self._states.values(), key=lambda state: state.name))


def class_of(kind: str) -> str:
    return f"{kind.capitalize()}State"


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A declared state in plain values, for reports and for comparing a program with a snapshot.

    Attributes:
        kind: `value`, `list`, `map`, `reducing` or `aggregating`. That of operator state is how it is
            redistributed: `split_distribute`, `union` or `broadcast`.
        of_type: Names of the declared types; empty without any.
        renamed_from: The name that it had before; empty for none.
        ttl: How long entries live, in words; empty for ever.
    """

    name: str
    kind: str
    of_type: str = ""
    renamed_from: str = ""
    ttl: str = ""
    is_keyed: bool = True


def infos_of(kind: type) -> tuple[StateInfo, ...]:
    """The states that a class declares, in plain values; runs no code of the class.

    Example:
        >>> from penstock.runtime.state.keyed_states import MapState
        >>> class Visits:
        ...     pages = MapState(str, int)
        >>> infos_of(Visits)
        (StateInfo(name='pages', kind='map', of_type='str: int', renamed_from='', ttl='', is_keyed=True),)
    """
    return tuple(map(_info, _declared(kind).values()))


def _info(state: DeclaredState) -> StateInfo:
    types, renamed_from = type_names(state.types), state.renamed_from or ""
    if isinstance(state, KeyedState):
        return StateInfo(state.name, state.kind, types, renamed_from, str(state.ttl or ""))
    assert isinstance(state, OperatorListState), "there is keyed state and operator state"
    return StateInfo(state.name, state.mode.value, types, renamed_from, is_keyed=False)


def states_of(kind: type) -> dict[str, KeyedState]:
    """The keyed states that a class and its bases declare, by attribute.

    Example:
        >>> from penstock.runtime.state.keyed_states import ListState, MapState, ValueState
        >>> class Base:
        ...     seen = ValueState(int, default=0)
        ...     pages = MapState(str, int)
        >>> class Own(Base):
        ...     pages = None
        ...     waiting = ListState(name="held back")
        >>> {attribute: state.name for attribute, state in states_of(Own).items()}
        {'seen': 'seen', 'waiting': 'held back'}
    """
    return {name: state for name, state in _declared(kind).items() if isinstance(state, KeyedState)}


def list_states_of(kind: type) -> dict[str, OperatorListState[Any]]:
    return {name: state for name, state in _declared(kind).items() if isinstance(state, OperatorListState)}


def set_views(function: object, views: Mapping[str, DeclaredState]) -> None:
    attributes = getattr(function, "__dict__", None)
    if attributes is None:
        msg = (
            f"{type(function).__name__} declares state and has __slots__, so its objects have no "
            "room for the views: leave __slots__ out, or add '__dict__' to them"
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
                f"{kind.__name__}.{other} and {kind.__name__}.{attribute} have the same name; each state has "
                "a name of its own"
            )
    return found
