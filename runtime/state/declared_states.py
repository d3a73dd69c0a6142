"""The states that a function's class declares, found without running anything of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.state.declared_state import DeclaredState
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.operator_list_state import OperatorListState
from penstock.runtime.state.state_types import type_names


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
    """The states that a class declares, in plain values; nothing of the class runs.

    Raises:
        ConfigurationError: Two states have the same name.

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

    Raises:
        ConfigurationError: Two attributes have the same state, or states of the same name.

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
    """The operator states that a class and its bases declare, by attribute.

    Raises:
        ConfigurationError: Two attributes have the same state, or states of the same name.

    Example:
        >>> class Waits:
        ...     pending = OperatorListState(str)
        >>> list(list_states_of(Waits))
        ['pending']
    """
    return {name: state for name, state in _declared(kind).items() if isinstance(state, OperatorListState)}


def set_views(function: object, views: Mapping[str, DeclaredState]) -> None:
    """Give a function object its views, by attribute.

    Raises:
        ConfigurationError: The object takes no attributes.
    """
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
