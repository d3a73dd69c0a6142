"""The states that a function's class declares, found without running anything of it."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.state_types import type_names


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A declared state in plain values, for reports and for comparing a program with a snapshot.

    Attributes:
        kind: `value`, `list`, `map`, `reducing` or `aggregating`.
        of_type: Names of the declared types; empty without any.
        renamed_from: The name that it had before; empty for none.
        ttl: How long entries live, in words; empty for ever.
    """

    name: str
    kind: str
    of_type: str = ""
    renamed_from: str = ""
    ttl: str = ""


def infos_of(kind: type) -> tuple[StateInfo, ...]:
    """The states that a class declares, in plain values; nothing of the class runs.

    Raises:
        ConfigurationError: Two states have the same name.

    Example:
        >>> from penstock.runtime.state.keyed_states import MapState
        >>> class Visits:
        ...     pages = MapState(str, int)
        >>> infos_of(Visits)
        (StateInfo(name='pages', kind='map', of_type='str: int', renamed_from='', ttl=''),)
    """
    return tuple(
        StateInfo(
            state.name, state.kind, type_names(state.types), state.renamed_from or "", str(state.ttl or "")
        )
        for state in states_of(kind).values()
    )


def states_of(kind: type) -> dict[str, KeyedState]:
    """The states that a class and its bases declare, by attribute.

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
    found: dict[str, KeyedState] = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, KeyedState):
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
