"""Requests of a user's function for keyed state: declared by its class, or by name at run time.

Each operator and subtask has one table for both kinds of requests. So a declared state can also be requested
by its name. Conflicting requests for one name are refused.

`StateSweep` does background work of keyed state between two batches, so it never changes state while a user's
function runs. It removes expired entries in slices of about a millisecond. Between two slices the
task does other work for several times as long, so records and barriers still pass. It also examines changes
for the next snapshot. The examination has no pauses: changes come as fast as records do, and each pause would
make the next examination longer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.names import normal_name
from penstock.runtime.ports import Clock
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    FoldsValues,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.known_states import class_of, set_views, states_of
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.time_to_live import StateTtl, Ttl

S = TypeVar("S", bound=KeyedState)


class RequestedStates:
    """The keyed states that the functions of one operator use in one subtask, by name."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[KeyedState, Mapping[str, object]]] = {}

    def bind_declared(self, function: object, backend: KeyedStateBackend | None) -> None:
        """Set the attributes of a function object to views of the states that its class declares."""
        declared = states_of(type(function))
        if not declared:
            return
        backend = needed_backend(backend, f"{type(function).__name__} declares keyed state, so it")
        for declaration in declared.values():
            backend.rename(declaration)
        set_views(
            function, {name: self._bind(state, backend, is_declared=True) for name, state in declared.items()}
        )

    def find(self, kind: type[KeyedState], name: str, settings: Mapping[str, object]) -> Any:
        """The state of this name; `None` before its first request. Refuses different settings."""
        known = self._views.get(name) if name in self._views else self._views.get(normal_name(name))
        if known is None:
            return None
        view, before = known
        if view.kind != kind.kind:
            msg = f"{kind.kind}_state({name!r}): {name!r} is already a {class_of(view.kind)}"
            raise ConfigurationError(msg)
        for setting, given in settings.items():
            value = StateTtl.of(given) if setting == "ttl" and given is not None else given  # type: ignore[arg-type]
            if value is not before[setting] and value != before[setting]:
                _refuse_other(kind, name, setting, before[setting], value)
        return view

    def bind(self, declaration: KeyedState, backend: KeyedStateBackend | None) -> Any:
        backend = needed_backend(backend, f"{declaration.kind}_state({declaration.name!r})")
        backend.rename(declaration)
        return self._bind(declaration, backend, is_declared=False)

    def _bind(self, declaration: KeyedState, backend: KeyedStateBackend, *, is_declared: bool) -> KeyedState:
        view = backend.bind(declaration, is_declared=is_declared)
        self._views[declaration.name] = view, declaration.settings
        return view


class AsksForKeyedState:
    """Methods of a context that return keyed state by name."""

    __slots__ = ()

    @property
    @abstractmethod
    def _requests(self) -> tuple[RequestedStates, KeyedStateBackend | None]:
        """The requests so far, and the keyed state; `None` when the stream is not keyed."""

    def value_state(
        self,
        name: str,
        default: Any = None,
        *,
        of_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> ValueState[Any]:
        """Return keyed state with one value per key, the same object each time. Call it in `open` or later.

        A class can also declare it: `count = ValueState(int, default=0)`. The state holds the argument of the
        last `update`; `value` returns a copy of a mutable value.

        Args:
            name: Unique in the operator; a restore finds the value by this name.
            default: Value of a key that has none: no list, dict, set or bytearray. Each key gets a copy of
                another mutable object.
            of_type: The type of the values, such as `int` or a class of yours. `update` refuses others, and a
                job with restored values of another type does not start. By default any type.
            ttl: Lifetime of a value after its last write: a `timedelta`, seconds, or a `StateTtl`.
            migrate: Converts a restored value of another type to `of_type`.

        Raises:
            ConfigurationError: The default is a list, dict, set or bytearray, or a setting differs from the
                first request.
            PenstockError: The stream is not keyed.
            StateMismatchError: The job starts from a snapshot that holds values of another type.
        """
        settings = {"default": default, "of_type": of_type, "ttl": ttl}
        return self._ask(ValueState, name, settings, migrate=migrate)

    def list_state(
        self,
        name: str,
        *,
        of_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> ListState[Any]:
        """Return keyed state with one list per key; see `ListState`.

        Args:
            of_type: The type of the elements; by default any type.
            ttl: Lifetime of an element after it was added: a `timedelta`, seconds, or a `StateTtl`.
            migrate: Converts a restored element of another type to `of_type`.
        """
        return self._ask(ListState, name, {"of_type": of_type, "ttl": ttl}, migrate=migrate)

    def map_state(
        self,
        name: str,
        *,
        key_type: type | None = None,
        value_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> MapState[Any, Any]:
        """Return keyed state with one map per key; see `MapState`.

        Args:
            key_type: The type of map keys; by default any type.
            ttl: Lifetime of an entry after its last write.
            migrate: Converts a restored value of another type to `value_type`.
        """
        settings = {"key_type": key_type, "value_type": value_type, "ttl": ttl}
        return self._ask(MapState, name, settings, migrate=migrate)

    def reducing_state(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        *,
        of_type: type | None = None,
        ttl: Ttl | None = None,
        migrate: Callable[[Any], Any] | None = None,
    ) -> ReducingState[Any]:
        """Return keyed state with one value per key, combined with each added value; see `ReducingState`.

        Args:
            function: Combines two values; later requests don't replace it.
            of_type: The type of the values.
            ttl: Lifetime of a value after its last write: a `timedelta`, seconds, or a `StateTtl`.
            migrate: Converts a restored value of another type to `of_type`.
        """
        settings = {"of_type": of_type, "ttl": ttl}
        return self._ask(ReducingState, name, settings, function=function, migrate=migrate)

    def aggregating_state(
        self, name: str, function: FoldsValues[Any, Any], *, ttl: Ttl | None = None
    ) -> AggregatingState[Any, Any]:
        """Return keyed state with one accumulator per key; see `AggregatingState`.

        Args:
            function: An `AggregateFunction`; later requests don't replace it.
            ttl: Lifetime of an accumulator after its last write.
        """
        return self._ask(AggregatingState, name, {"ttl": ttl}, function=function)

    def _ask(self, kind: type[S], name: str, settings: Mapping[str, object], **others: object) -> S:
        requests, backend = self._requests
        found: S | None = requests.find(kind, name, settings)
        make: Callable[..., S] = kind
        return requests.bind(make(name=name, **settings, **others), backend) if found is None else found

    def keys(self, state: KeyedState | str) -> Iterator[Any]:
        """Return this subtask's keys that have an entry in a state, in any order; `state` may be a name."""
        _, backend = self._requests
        return iter(needed_backend(backend, "keys").keys(state if isinstance(state, str) else state.name))


def needed_backend(backend: KeyedStateBackend | None, what: str) -> KeyedStateBackend:
    if backend is None:
        msg = f"{what} needs a keyed stream: call key_by(function) before this operator"
        raise PenstockError(msg)
    return backend


def _refuse_other(kind: type[KeyedState], name: str, setting: str, before: object, value: object) -> NoReturn:
    what = f"the default {before!r}" if setting == "default" else f"{setting}={before!r}"
    msg = f"{kind.kind}_state({name!r}) already has {what} and can't have {value!r}"
    raise ConfigurationError(msg)


#: Maximum number of entries that one slice examines.
MOST_ENTRIES: Final = 2_000
#: Pause after a slice as a multiple of its duration, and the minimum pause in seconds.
_REST: Final = 4.0

_SHORTEST_REST: Final = 0.001


class StateSweep:
    """Runs the slices of the sweep when they are due."""

    def __init__(self, backend: KeyedStateBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._rest_until = 0.0

    @property
    def due_at(self) -> float | None:
        """Monotonic time of the next slice, in the past when it is due.

        `None` if there is nothing to do before the watermark advances, or at all.
        """
        if self._backend.is_examination_due:
            return 0.0
        due_in = self._backend.sweep_in
        if due_in is None:
            return None
        return self._rest_until if due_in <= 0 else self._clock.monotonic() + due_in

    def run_if_due(self) -> None:
        """Examine changes if that is due, else run one slice if one is due."""
        if self._backend.is_examination_due:
            self._backend.examine_changes()
            return
        due_at, begun = self.due_at, self._clock.monotonic()
        if due_at is None or due_at > begun:
            return
        self._backend.sweep(MOST_ENTRIES)
        ended = self._clock.monotonic()
        self._rest_until = ended + max(_SHORTEST_REST, _REST * (ended - begun))
