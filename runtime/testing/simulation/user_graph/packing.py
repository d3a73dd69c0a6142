"""Copies of users' objects, as processes of a cluster get them: pickled once, unpacked for each process.

What one subtask keeps in its function, its closure or its sink is then unknown to the others, and lost when
its process dies. Modules, classes, code and the globals of functions are shared, since every process imports
its own. State that an object keeps there is not simulated. The *world*, which is everything that `output`
reads, is shared too. It outlives all processes, and must not be copied.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from penstock.runtime.errors import GraphError

#: Stands for a cell of a closure that was never filled.
_EMPTY: Final = "empty"
_FILLED: Final = "filled"


class PackedCode:
    """Some objects, packed; each `unpack` gives new ones.

    Args:
        what: The objects.
        world: Objects that stay the same ones in every copy.

    Raises:
        GraphError: Something can't be sent to another process.

    Example:
        >>> def counter(results):
        ...     seen = []
        ...     return lambda n: (seen.append(n), results.append(n), len(seen))[-1]
        >>> results = []
        >>> packed = PackedCode(counter(results), world=[results])
        >>> packed.unpack()(1), packed.unpack()(2), results
        (1, 1, [1, 2])
    """

    def __init__(self, what: Any, world: Iterable[Any] = ()) -> None:
        self._shared: list[Any] = []
        file = io.BytesIO()
        try:
            _Packer(file, self._shared, {id(each) for each in world}).dump(what)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            msg = (
                f"the job can't be sent to another process: {error}. If it is part of what output() reads, "
                "let build() return it beside the environment"
            )
            raise GraphError(msg) from error
        self._data = file.getvalue()

    def unpack(self) -> Any:
        """New copies of the objects."""
        return _Unpacker(io.BytesIO(self._data), self._shared).load()


class _Packer(pickle.Pickler):
    """Pickles functions by value, and refers to what is shared by its number.

    Args:
        file: Takes the bytes.
        shared: Takes what is shared.
        world: Ids of objects that are shared.
    """

    def __init__(self, file: io.BytesIO, shared: list[Any], world: set[int]) -> None:
        super().__init__(file, protocol=5)
        self._shared = shared
        self._world = world
        self._numbers: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not self._is_shared(obj):
            return None
        if id(obj) not in self._numbers:
            self._numbers[id(obj)] = len(self._shared)
            self._shared.append(obj)
        return self._numbers[id(obj)]

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, FunctionType):
            return NotImplemented
        cells = obj.__closure__ or ()
        self._world.add(id(obj.__globals__))
        made = (obj.__code__, obj.__globals__, obj.__name__, len(cells))
        state = (
            obj.__qualname__,
            obj.__defaults__,
            obj.__kwdefaults__,
            obj.__dict__,
            list(map(_read, cells)),
        )
        return _new_function, made, state, None, None, _fill_function

    def _is_shared(self, obj: Any) -> bool:
        if isinstance(obj, CodeType | ModuleType | type) or id(obj) in self._world:
            return True
        if isinstance(obj, FunctionType):
            return not (obj.__closure__ or obj.__defaults__ or obj.__kwdefaults__ or obj.__dict__)
        return _refuses_to_travel(obj)


class _Unpacker(pickle.Unpickler):
    """Reads what `_Packer` has written.

    Args:
        file: The bytes.
    """

    def __init__(self, file: io.BytesIO, shared: list[Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, pid: Any) -> Any:
        return self._shared[pid]


def _refuses_to_travel(obj: Any) -> bool:
    """Whether an object says by its own `__reduce__` that it stays in its process, as collectors do."""
    reduce = getattr(type(obj), "__reduce__", None)
    if not isinstance(reduce, FunctionType):
        return False
    try:
        reduce(obj)
    except TypeError:
        return True
    return False


def _read(cell: CellType) -> tuple[str, Any]:
    try:
        return _FILLED, cell.cell_contents
    except ValueError:
        return _EMPTY, None


def _new_function(code: CodeType, names: dict[str, Any], name: str, cells: int) -> FunctionType:
    return FunctionType(code, names, name, None, tuple(CellType() for _ in range(cells)))


def _fill_function(function: FunctionType, state: tuple[Any, ...]) -> None:
    qualname, defaults, keyword_defaults, attributes, cells = state
    function.__qualname__ = qualname
    function.__defaults__ = defaults
    function.__kwdefaults__ = keyword_defaults
    function.__dict__.update(attributes)
    for cell, (kind, value) in zip(function.__closure__ or (), cells, strict=True):
        if kind == _FILLED:
            cell.cell_contents = value


def world_of(world: Any, output: Any) -> list[Any]:
    """What outlives all processes: what `build` gave beside the environment, and what `output` refers to.

    Of containers and of plain objects their parts count, too.
    """
    found: list[Any] = []
    for each in (world, getattr(output, "__self__", None), *_named_by(output)):
        found.append(each)
        if isinstance(each, Mapping):
            found.extend(each.values())
        elif isinstance(each, tuple | list | set | frozenset):
            found.extend(each)
        elif hasattr(each, "__dict__") and not isinstance(each, ModuleType | type | FunctionType):
            found.extend(vars(each).values())
    return [each for each in found if not isinstance(each, int | float | str | bytes | None)]


def _named_by(function: Any) -> list[Any]:
    """What a function finds in its closure and among its globals."""
    if not isinstance(function, FunctionType):
        return []
    named = [value for kind, value in map(_read, function.__closure__ or ()) if kind == _FILLED]
    known = function.__globals__
    named += [known[name] for name in function.__code__.co_names if name in known]
    return [each for each in named if not isinstance(each, ModuleType | type | FunctionType)]
