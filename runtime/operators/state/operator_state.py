"""List state that an operator has in one subtask; keyed state: `keyed_state_requests`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.declared_states import list_states_of, set_views
from penstock.runtime.state.operator_list_state import HeldListState, OperatorListState
from penstock.runtime.state.state_types import type_names


@dataclass(frozen=True, slots=True)
class SavedList:
    """One named list of values that an operator puts into a snapshot.

    Attributes:
        values: What is kept; each value is an atom when the list is redistributed.
        mode: How it is redistributed on restore.
        of_type: Name of the declared type; empty without any.
        is_declared: Whether the function's class declares it.
    """

    values: Sequence[Any]
    mode: RedistributionMode = RedistributionMode.SPLIT_DISTRIBUTE
    of_type: str = ""
    is_declared: bool = False


class ListStates:
    """The list states of one operator in one subtask, by name.

    A restored list that the operator does not ask for stays in every snapshot: it may ask later, or its next
    version may. Of a union list this subtask keeps its own part (`own_parts`).

    Args:
        unasked: Mode and encoded values of this subtask's own part of each restored list.
        decode: Decodes a value.
        restored: What this subtask got of each restored list.
        refusal: Why the operator can't have lists; empty if it can.
    """

    def __init__(
        self,
        unasked: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] | None = None,
        decode: Callable[[bytes], Any] = bytes,
        restored: Mapping[str, Sequence[Any]] | None = None,
        refusal: str = "",
    ) -> None:
        self._states: dict[str, OperatorListState[Any]] = {}
        self._declared: set[str] = set()
        self._unasked = dict(unasked or {})
        self._decode = decode
        self._restored = dict(restored or {})
        self._refusal = refusal

    def bind_declared(self, function: object) -> None:
        """Give a function object views of the lists that its class declares.

        Args:
            function: The user's object; its attributes are set.

        Raises:
            ConfigurationError: Two states have one name, or the object takes no attributes.
            StateMismatchError: What was restored has another mode or type, and can't be migrated.
        """
        declared = list_states_of(type(function))
        if not declared:
            return
        self._declared.update(state.name for state in declared.values())
        set_views(function, {attribute: self.ask(state) for attribute, state in declared.items()})

    def ask(self, wanted: OperatorListState[Any]) -> OperatorListState[Any]:
        """The list of this name, which begins with what was restored.

        Raises:
            ConfigurationError: The list has another mode or type, or the operator can have none.
            StateMismatchError: The restored list has another mode or type, and can't be migrated.
        """
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
                f"{wanted.mode.value!r}: ask for it with its old mode, or give the new list another name"
            )
            raise StateMismatchError(msg)
        state = self._states[wanted.name] = HeldListState(wanted, self._restored.pop(name, ()))
        self._unasked.pop(name, None)
        return state

    def saved(self) -> dict[str, SavedList]:
        """Every list that belongs into a snapshot: those asked for, and restored ones that were not."""
        unasked = {
            name: SavedList(tuple(map(self._decode, values)), mode)
            for name, (mode, values) in self._unasked.items()
        }
        asked = {
            name: SavedList(state.get(), state.mode, type_names(state.types), name in self._declared)
            for name, state in self._states.items()
        }
        return {**unasked, **asked}


def _check_same(known: OperatorListState[Any], wanted: OperatorListState[Any]) -> None:
    if known.mode is not wanted.mode:
        msg = (
            f"list state {known.name!r} already has the mode {known.mode.value!r} and can't have "
            f"{wanted.mode.value!r}"
        )
        raise ConfigurationError(msg)
    if wanted.of_type not in (None, known.of_type):
        msg = (
            f"list state {known.name!r} already holds {type_names(known.types) or 'values of any type'} and "
            f"can't be of type {type_names(wanted.types)}"
        )
        raise ConfigurationError(msg)
