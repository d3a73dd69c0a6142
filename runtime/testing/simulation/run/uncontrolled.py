"""Finds uncontrolled inputs in users' code: clocks, randomness, threads, networks and global values.

The module inspects users' functions and methods, and the users' functions that these call by name.
Nothing is executed, so indirect calls are not found. They become visible when a replay diverges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from dis import get_instructions
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.user_location import function_location

#: Kind of input by module; the name of a top-level package also stands for all its modules.
_KINDS: Final[Mapping[str, str]] = {
    "time": "clock",
    "datetime": "clock",
    "random": "randomness",
    "secrets": "randomness",
    "uuid": "randomness",
    "numpy.random": "randomness",
    "threading": "threads",
    "_thread": "threads",
    "concurrent": "threads",
    "multiprocessing": "threads",
    "asyncio": "threads",
    "subprocess": "threads",
    "socket": "network",
    "urllib": "network",
    "http": "network",
    "requests": "network",
}

#: Uncontrolled names of modules that also have harmless names.
_NAMES: Final[Mapping[str, frozenset[str]]] = {
    "time": frozenset({"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "sleep", "localtime"}),
    "datetime": frozenset({"now", "utcnow", "today"}),
    "uuid": frozenset({"uuid1", "uuid4"}),
    # Coroutines of `map_async` run on a simulated event loop.
    "asyncio": frozenset({"run", "new_event_loop", "Runner", "run_coroutine_threadsafe"}),
}

#: Maximum number of objects visited from one operator.
_MOST_FUNCTIONS: Final = 500


@dataclass(frozen=True, slots=True, order=True)
class Uncontrolled:
    """Something in users' code that differs from run to run.

    Attributes:
        kind: `clock`, `randomness`, `threads`, `network`, or `global`.
        what: The name that the code uses, such as `time.time`.
        where: The function that uses the name, with its line.
        operator: The operator that runs it.
    """

    kind: str
    what: str
    where: str
    operator: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what} in {self.where}, run by {self.operator!r}"


def find_uncontrolled(job: JobGraph) -> tuple[Uncontrolled, ...]:
    found: set[Uncontrolled] = set()
    run: list[tuple[str, Any]] = [
        (o.id, o.source or o.factory) for vertex in job.vertices for o in vertex.operators
    ]
    run += [(edge.target_vertex, edge.partitioner.key_selector) for edge in job.edges]
    for operator, code in run:
        for function in _functions_of(code):
            where = function_location(function)
            found.update(Uncontrolled(kind, what, where, operator) for kind, what in _uses(function))
    return tuple(sorted(found))


def _functions_of(thing: Any) -> Iterator[FunctionType]:
    """Yield the functions reachable from an object, each once, except Penstock's own."""
    waiting: list[Any] = [thing]
    visited: dict[int, Any] = {}  # visited objects stay alive, so that no id is reused
    while waiting and len(visited) < _MOST_FUNCTIONS:
        part = waiting.pop()
        if id(part) in visited or part is None or isinstance(part, ModuleType | str | bytes | int | float):
            continue
        visited[id(part)] = part
        if isinstance(part, FunctionType) and not _is_ours(part.__module__):
            yield part
        waiting += _parts_of(part)


def _parts_of(thing: Any) -> list[Any]:
    if isinstance(thing, FunctionType):
        return [] if _is_ours(thing.__module__) else _named_in(thing)
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, property):
        return [thing.fget]
    if isinstance(thing, staticmethod | classmethod):
        return [thing.__func__]
    if isinstance(thing, list | tuple):
        return list(thing)
    if isinstance(thing, type):
        methods = [] if _is_ours(thing.__module__) else list(vars(thing).values())
        return [*methods, *(base for base in thing.__bases__ if base is not object)]
    return [*getattr(thing, "__dict__", {}).values(), type(thing)]


def _named_in(function: FunctionType) -> list[Any]:
    known = function.__globals__
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    named = [known[name] for name in names if name in known]
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return [used for used in (*named, *cells) if isinstance(used, FunctionType | type | MethodType | partial)]


def _uses(function: FunctionType) -> Iterator[tuple[str, str]]:
    """Kind and name of each use that the seed does not determine."""
    known = dict(function.__globals__)
    for code in _codes(function.__code__):
        chain: tuple[str, Any] | None = None
        for instruction in get_instructions(code):
            name, operation = instruction.argval, instruction.opname
            if operation == "STORE_GLOBAL":
                yield "global", name
            elif operation == "IMPORT_NAME":
                yield from _judge(name, None, code.co_names)
            if operation in ("LOAD_GLOBAL", "LOAD_NAME"):
                chain = (name, known.get(name))
            elif operation in ("LOAD_ATTR", "LOAD_METHOD") and chain is not None:
                chain = _attribute(chain, name)
            else:
                chain = None
            if chain is not None:
                yield from _judge_value(*chain)


def _attribute(chain: tuple[str, Any], name: str) -> tuple[str, Any] | None:
    owner, value = chain
    if isinstance(value, ModuleType):
        return f"{value.__name__}.{name}", getattr(value, name, None)
    if isinstance(value, type) and value.__module__ == "datetime":
        return f"{owner}.{name}", getattr(value, name, None)
    return None


def _judge_value(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if (
        isinstance(value, ModuleType)
        or not callable(value)
        or (isinstance(value, FunctionType) and (_kind_of(str(value.__module__)) is None))
    ):
        return
    owner = getattr(value, "__self__", None)
    module = owner.__module__ if isinstance(owner, type) else getattr(value, "__module__", None)
    if not isinstance(module, str):
        module = type(owner).__module__  # a method of an object in C, such as random.random
    plain = str(getattr(value, "__name__", name))
    yield from _judge(module, plain, ())


def _judge(module: str, name: str | None, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Judge a call of `module.name`; without `name` an import of `module` by code that uses `names`."""
    kind, wanted = _kind_of(module), _NAMES.get(module, _NAMES.get(module.partition(".")[0]))
    if kind is None:
        return
    if name is not None:
        if wanted is None or name in wanted:
            yield kind, f"{module}.{name}"
    elif wanted is None:
        yield kind, module
    else:
        yield from ((kind, f"{module}.{used}") for used in names if used in wanted and used != module)


def _kind_of(module: str) -> str | None:
    return _KINDS.get(module) or _KINDS.get(module.partition(".")[0])


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_ours(module: str | None) -> bool:
    return module is None or module == "builtins" or module.startswith("penstock.")


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
