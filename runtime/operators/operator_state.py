"""Counters and list state that an operator asks its context for; keyed state: `keyed_state_requests`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.misspelt_names import NearestMembers, nearest_name
from penstock.runtime.snapshot.handles import RedistributionMode

#: How the values of a list state are redistributed when a job starts from a snapshot.
ListStateMode: TypeAlias = Literal["split_distribute", "union", "broadcast"]


class Counter:
    """A number that shows up in the operator's statistics.

    Example:
        >>> counter = Counter()
        >>> counter.increment()
        >>> counter.increment(2)
        >>> counter.value
        3
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def increment(self, by: int = 1) -> None:
        """Add to it."""
        self.value += by


class OperatorListState(NearestMembers):
    """A list of values that an operator keeps in one subtask (Flink's `ListState` of operator state).

    Every checkpoint holds the values that the list has when its barrier passes. Each value is encoded by
    itself, because another subtask may get it after a rescale.

    Args:
        mode: How the values are redistributed.
        values: What the list holds at first.

    Example:
        >>> seen = OperatorListState(RedistributionMode.UNION, [1])
        >>> seen.add(2)
        >>> seen.get()
        [1, 2]
    """

    __slots__ = ("_values", "mode")

    def __init__(self, mode: RedistributionMode, values: Iterable[Any] = ()) -> None:
        self.mode = mode
        self._values = list(values)

    def get(self) -> list[Any]:
        """A copy of the list."""
        return list(self._values)

    def add(self, value: Any) -> None:
        """Append a value."""
        self._values.append(value)

    def update(self, values: Iterable[Any]) -> None:
        """Replace all values."""
        self._values = list(values)

    def clear(self) -> None:
        """Remove all values."""
        self._values = []


class ListStates:
    """The list states of one operator in one subtask, by name.

    A restored list that the operator does not ask for stays in every snapshot: it may ask later, or its next
    version may. Of a union list this subtask keeps its own part (`own_parts`).

    Args:
        unasked: Mode and encoded values of this subtask's own part of each restored list.
        decode: Decodes a value.
    """

    def __init__(
        self,
        unasked: Mapping[str, tuple[RedistributionMode, Sequence[bytes]]] | None = None,
        decode: Callable[[bytes], Any] = bytes,
    ) -> None:
        self._states: dict[str, OperatorListState] = {}
        self._unasked = dict(unasked or {})
        self._decode = decode

    def ask(self, name: str, mode: ListStateMode, restored: Mapping[str, Sequence[Any]]) -> OperatorListState:
        """The list of this name, which begins with what was restored.

        Raises:
            ConfigurationError: There is no such mode, or the list has another one.
            StateMismatchError: The restored list has another mode.
        """
        known = [each.value for each in RedistributionMode]
        if mode not in known:
            hint = nearest_name(str(mode), known)
            msg = f"list_state({name!r}): mode is one of {', '.join(map(repr, known))}, not {mode!r}{hint}"
            raise ConfigurationError(msg)
        wanted = RedistributionMode(mode)
        state = self._states.get(name)
        if state is None:
            saved = self._unasked.get(name)
            if saved is not None and saved[0] is not wanted:
                msg = (
                    f"list_state({name!r}) was saved with the mode {saved[0].value!r} and can't have "
                    f"{mode!r}: ask for it with its old mode, or give the new list another name"
                )
                raise StateMismatchError(msg)
            state = self._states[name] = OperatorListState(wanted, restored.get(name, ()))
            self._unasked.pop(name, None)
        elif state.mode is not wanted:
            msg = f"list_state({name!r}) already has the mode {state.mode.value!r} and can't have {mode!r}"
            raise ConfigurationError(msg)
        return state

    @property
    def all(self) -> Mapping[str, OperatorListState]:
        """Every list that belongs into a snapshot: those asked for, and restored ones that were not."""
        unasked = {
            name: OperatorListState(mode, map(self._decode, values))
            for name, (mode, values) in self._unasked.items()
        }
        return {**unasked, **self._states}
