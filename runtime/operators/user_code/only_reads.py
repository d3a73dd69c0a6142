"""`only_reads`: whether a function can neither change its arguments nor keep them.

A record is copied when it is emitted, because a function could change it later. Most small functions can't:
`lambda row: (row["user"], row["cents"])` has no instruction that changes anything but a local variable. If
all functions of a subtask only read, nothing is copied.

The bytecode is examined. Every instruction must be known to be harmless: loads, locals, arithmetic,
comparisons, literals, comprehensions, `yield`. The functions, methods, classes and modules below are
harmless to call. So are plain record classes, and other functions that only read. A store into an object, an
assignment with `+=`, an import, a `try` or any other call may change something. The answer is then no, which
only costs a copy. Two stores are known to be harmless: `self.count += 1`, and a store into a `MapState` of
`self`.

Operators, properties and hashes of users' classes are assumed to change nothing.

The answer must never be yes for a function that appends to a list, stores a record in an attribute or makes
an unknown call.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Final
from uuid import UUID

from penstock.runtime.operators.user_code.function_class import OutputTag
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.state.keyed_states import KeyedState, MapState
from penstock.runtime.state.own_copy import LEAVES

_INSTRUCTIONS_TEXT: Final = """
    BINARY_SLICE BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SET BUILD_SLICE
    BUILD_STRING BUILD_TUPLE CACHE CALL CALL_INTRINSIC_1 CALL_KW COMPARE_OP CONTAINS_OP
    CONVERT_VALUE COPY COPY_FREE_VARS DELETE_FAST DICT_MERGE DICT_UPDATE END_FOR END_SEND
    EXTENDED_ARG FORMAT_SIMPLE FORMAT_VALUE FORMAT_WITH_SPEC FOR_ITER GET_ITER GET_LEN
    GET_YIELD_FROM_ITER IS_OP JUMP_BACKWARD JUMP_FORWARD JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP
    KW_NAMES LIST_APPEND LIST_EXTEND LIST_TO_TUPLE LOAD_ATTR LOAD_CLOSURE LOAD_CONST LOAD_DEREF
    LOAD_FAST LOAD_FAST_AND_CLEAR LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW LOAD_FAST_CHECK
    LOAD_FAST_LOAD_FAST LOAD_GLOBAL LOAD_METHOD LOAD_SMALL_INT MAKE_CELL MAKE_FUNCTION MAP_ADD NOP
    NOT_TAKEN POP_ITER POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_BACKWARD_IF_NONE
    POP_JUMP_BACKWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
    POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_IF_FALSE
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PRECALL RERAISE RESUME
    RETURN_CONST RETURN_GENERATOR RETURN_VALUE SEND SET_ADD SET_FUNCTION_ATTRIBUTE SET_UPDATE
    STORE_FAST STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST SWAP TO_BOOL UNARY_INVERT UNARY_NEGATIVE
    UNARY_NOT UNARY_POSITIVE UNPACK_EX UNPACK_SEQUENCE YIELD_VALUE
"""
_INSTRUCTIONS: Final = frozenset(_INSTRUCTIONS_TEXT.split())

#: Number of the last operation like `a + b`; the operations like `a += b` have larger numbers.
_LAST_BINARY: Final = 12

_BUILTINS_TEXT: Final = """
    abs all any bool bytes chr complex dict divmod enumerate float format frozenset hash hex int
    isinstance issubclass len list max min oct ord pow range repr reversed round set sorted str sum
    tuple type zip
"""
_BUILTINS: Final = frozenset(_BUILTINS_TEXT.split())

#: Methods that only read. No builtin type and no numpy array has a mutating method of one of these names.
_METHODS_TEXT: Final = """
    as_integer_ratio astimezone bit_length capitalize casefold center conjugate copy count date decode
    encode endswith find fromisoformat get hex index is_integer isalnum isalpha isascii isdecimal
    isdigit isdisjoint islower isnumeric isoformat isspace issubset issuperset istitle isupper items
    join keys ljust lower lstrip quantize removeprefix removesuffix rfind rindex rjust
    rpartition rsplit rstrip split splitlines startswith strftime strip swapcase time timestamp
    timetuple title to_bytes toordinal total_seconds translate upper utcoffset values weekday year zfill
    append_column cast column column_names drop_columns equals fill_null filter is_null is_valid
    rename_columns select set_column slice sort_by take to_pydict to_pylist
"""
_METHODS: Final = frozenset(_METHODS_TEXT.split())

#: Methods of a context that receive a record or a moment; the runtime copies records if necessary.
_CONTEXT_METHODS: Final = frozenset(
    {
        "output",
        "register_event_time_timer",
        "register_processing_time_timer",
        "delete_event_time_timer",
        "delete_processing_time_timer",
    }
)

_STATE_METHODS: Final = frozenset({"value", "update", "clear", "get", "add", "put", "extend"})

#: Classes of immutable values that keep no record.
_VALUES: Final = frozenset({date, datetime, time, timedelta, timezone, Decimal, UUID})

_FUNCTIONS: Final = frozenset({json.loads, json.dumps})

#: Modules whose functions change none of their arguments.
_MODULES: Final = frozenset({"math", "time", "pyarrow", "pyarrow.compute"})

#: Arguments that make the functions and methods above call other code, or write into an object.
_UNSAFE_ARGUMENTS: Final = frozenset(
    {
        "key",
        "default",
        "cls",
        "object_hook",
        "object_pairs_hook",
        "out",
        "parse_float",
        "parse_int",
        "parse_constant",
    }
)

#: Maximum number of parts, and depth, of data that is examined.
_MOST_PARTS: Final = 10_000
_DEPTH: Final = 4

#: Instructions without effect.
_SILENT: Final = frozenset({"CACHE", "NOP", "NOT_TAKEN", "RESUME", "EXTENDED_ARG"})


def only_reads(function: Callable[..., Any]) -> bool:
    """Return whether a function neither changes nor keeps its arguments, as far as its bytecode shows.

    Example:
        >>> only_reads(lambda row: (row["user"], len(row["items"])))
        True
        >>> seen = []
        >>> only_reads(lambda row: seen.append(row))
        False
    """
    return _reads(function, set())


def _reads(function: Any, seen: set[Any]) -> bool:
    if isinstance(function, ColumnKey | itemgetter | attrgetter):
        return True
    if isinstance(function, partial):
        return not function.keywords and _is_data(function.args) and _reads(function.func, seen)
    if isinstance(function, MethodType):
        if isinstance(function.__func__, FunctionType):
            return _reads_function(function.__func__, seen, function.__self__)
        return False
    if isinstance(function, FunctionType):
        return _is_safe_callee(function, seen) or _reads_function(function, seen, None)
    return _is_safe_callee(function, seen)


def _reads_function(function: FunctionType, seen: set[Any], owner: object) -> bool:
    code = function.__code__
    if code in seen:  # a recursive call: this code is already being examined
        return True
    seen.add(code)
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    if len(cells) < len(code.co_freevars):
        return False
    names = _Names(function.__globals__, dict(zip(code.co_freevars, cells, strict=True)), owner)
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return all(map(_is_data, defaults)) and _code_reads(code, names, seen)


def _is_filled(cell: Any) -> bool:
    try:
        return bool([cell.cell_contents])
    except ValueError:
        return False


@dataclass(frozen=True)
class _Names:
    """Values of the names in a function; `owner` is the method's object, or `None`."""

    scope: Mapping[str, Any]
    cells: Mapping[str, Any]
    owner: object

    def of(self, name: str) -> Any:
        return self.scope.get(name, getattr(builtins, name, None))

    def of_owner(self, attribute: str) -> Any:
        found = inspect.getattr_static(type(self.owner), attribute, None)
        return MethodType(found, self.owner) if isinstance(found, FunctionType) else found


def _code_reads(code: CodeType, names: _Names, seen: set[Any]) -> bool:
    if _has_unsafe_argument(code):
        return False
    arguments = code.co_varnames[: code.co_argcount]
    owner = arguments[0] if names.owner is not None and arguments else None
    context = arguments[-1] if owner and len(arguments) > 2 else None
    steps = [step for step in _instructions(code) if step.opname not in _SILENT]
    for place, step in enumerate(steps):
        name, value = step.opname, step.argval
        if name == "BINARY_OP":
            # `a += b` changes a list in place.
            if not (_is_plain(step) or _counts(steps, place, owner)):
                return False
        elif name == "STORE_ATTR":
            if not _counts(steps, place - 2, owner):
                return False
        elif name == "STORE_SUBSCR":
            if owner is None or not _puts_into_map(steps[:place], names, owner):
                return False
        elif name == "PUSH_NULL":
            if not _calls_import(steps[:place], names):
                return False
        elif name not in _INSTRUCTIONS:
            return False
        elif name == "LOAD_GLOBAL":
            behind = steps[place + 1]
            method = behind.argval if behind.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
            if not _is_safe_name(names.of(value), method, seen):
                return False
        elif name in ("LOAD_DEREF", "LOAD_CLOSURE"):
            if not _is_safe_name(names.cells.get(value), None, seen):
                return False
        elif name == "LOAD_CONST" and isinstance(value, CodeType):
            if not _code_reads(value, names, seen):
                return False
        elif owner is not None and name.startswith("LOAD_FAST") and _loads(step, owner):
            counts = _counts(steps, place + 4, owner)
            if value != owner or not (counts or _reads_owner(steps[place + 1 : place + 3], names, seen)):
                return False
        elif _is_method(step) and value not in _METHODS:
            before = steps[max(0, place - 2) : place]
            if not _is_known_method(value, before, names, owner, context):
                return False
    return True


def _calls_import(before: list[dis.Instruction], names: _Names) -> bool:
    """Return whether `module.function` or `Class.method` is called; since Python 3.14 no bit marks these.

    The name itself is checked where it is loaded.
    """
    *_, loads, attribute = (None, None, *before)
    if loads is None or attribute is None or (loads.opname, attribute.opname) != ("LOAD_GLOBAL", "LOAD_ATTR"):
        return False
    return isinstance(names.of(loads.argval), ModuleType) or attribute.argval in _METHODS


def _is_plain(step: dis.Instruction) -> bool:
    """Return whether an operation leaves its operands as they are, such as `a + b`.

    Since Python 3.14 `a[b]` is one of these operations, too.
    """
    return (step.arg or 0) <= _LAST_BINARY or step.argrepr == "[]"


def _counts(steps: list[dis.Instruction], place: int, owner: str | None) -> bool:
    """Return whether the `+=` at this place adds a number to an attribute, as `self.count += 1` does."""
    if owner is None or place < 4 or len(steps) < place + 3:
        return False
    loads, copies, attribute, constant, changes, swaps, stores = steps[place - 4 : place + 3]
    return (
        loads.opname.startswith("LOAD_FAST")
        and loads.argval == owner
        and [step.opname for step in (copies, attribute, changes)] == ["COPY", "LOAD_ATTR", "BINARY_OP"]
        and constant.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        and type(constant.argval) in (int, float)
        and (swaps.opname, stores.opname) == ("SWAP", "STORE_ATTR")
        and attribute.argval == stores.argval
    )


def _puts_into_map(before: list[dis.Instruction], names: _Names, owner: str) -> bool:
    """Return whether a store is `self.state[key] = value`; the key is a name, a constant or `row["name"]`."""
    for key in (["LOAD_FAST"], ["LOAD_CONST"], ["LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR"]):
        *_, first, second = [None, None, *before[: len(before) - len(key)]]
        if first is None or second is None or [*map(_plain_name, before[-len(key) :])] != key:
            continue
        if first.argval == owner and isinstance(names.of_owner(str(second.argval)), MapState):
            return second.opname == "LOAD_ATTR"
    return False


def _plain_name(step: dis.Instruction) -> str:
    """The name that an instruction had before Python 3.14."""
    if step.opname == "BINARY_OP" and step.argrepr == "[]":
        return "BINARY_SUBSCR"
    return {"LOAD_FAST_BORROW": "LOAD_FAST", "LOAD_SMALL_INT": "LOAD_CONST"}.get(step.opname, step.opname)


def _loads(step: dis.Instruction, name: str) -> bool:
    return step.argval == name or (isinstance(step.argval, tuple) and name in step.argval)


def _reads_owner(behind: list[dis.Instruction], names: _Names, seen: set[Any]) -> bool:
    """Return whether `self.x` is a state, the tag of a side output, or a method that only reads."""
    if not behind or behind[0].opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return False
    found = names.of_owner(behind[0].argval)
    if isinstance(found, MapState):
        return True  # every read of it returns copies
    if isinstance(found, KeyedState):
        return len(behind) > 1 and _is_method(behind[1])
    return isinstance(found, OutputTag) or (_is_method(behind[0]) and _reads(found, seen))


def _is_known_method(
    method: str, before: list[dis.Instruction], names: _Names, owner: str | None, context: str | None
) -> bool:
    """Return whether a method belongs to a context, a state, a module, or the owner."""
    *_, first, last = (None, None, *before)
    if last is None:
        return False
    if last.opname == "LOAD_GLOBAL":
        return isinstance(names.of(last.argval), ModuleType)
    if last.opname.startswith("LOAD_FAST") and owner is not None and last.argval == owner:
        return True
    of_context = {last.argval, None if first is None else first.argval}
    if method in _CONTEXT_METHODS:
        return context is not None and context in of_context
    return (
        method in _STATE_METHODS
        and first is not None
        and owner is not None
        and first.argval == owner
        and isinstance(names.of_owner(last.argval), KeyedState)
    )


def _has_unsafe_argument(code: CodeType) -> bool:
    """Return whether a call has one of `_UNSAFE_ARGUMENTS`: `sorted(rows, key=kept.append)`."""
    steps = _disassembled(code)
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        if step.opname == "KW_NAMES" and _UNSAFE_ARGUMENTS & set(code.co_consts[step.arg or 0]):
            return True
        if following is not None and following.opname == "BUILD_CONST_KEY_MAP":
            continue  # the keys of a dict, such as {"key": ..., "default": ...}
        # Since Python 3.13 the constant before the call has the names.
        names = step.argval if step.opname == "LOAD_CONST" and isinstance(step.argval, tuple) else ()
        if any(isinstance(name, str) and name in _UNSAFE_ARGUMENTS for name in names):
            return True
    return False


@lru_cache(maxsize=1_000)
def _disassembled(code: CodeType) -> tuple[dis.Instruction, ...]:
    """Return all instructions; cached, because each operator and each restart examines its functions."""
    return tuple(dis.get_instructions(code))


def _instructions(code: CodeType) -> tuple[dis.Instruction, ...]:
    """All instructions before the handler of `StopIteration` that Python 3.12 adds to a generator."""
    steps = _disassembled(code)
    for place, step in enumerate(steps[:-1]):
        if step.opname == "CALL_INTRINSIC_1" and steps[place + 1].opname == "RERAISE":
            return steps[:place]
    return steps


def _is_method(step: dis.Instruction) -> bool:
    return step.opname == "LOAD_METHOD" or (
        # Since Python 3.12 the lowest bit marks methods.
        step.opname == "LOAD_ATTR" and _HAS_METHOD_BIT and bool((step.arg or 0) & 1)
    )


_HAS_METHOD_BIT: Final = "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255


def _is_safe_name(value: Any, method: str | None, seen: set[Any]) -> bool:
    if isinstance(value, ModuleType):
        return method is not None and value.__name__ in _MODULES and callable(getattr(value, method, None))
    return _is_data(value) or _reads(value, seen)


def _is_safe_callee(value: Any, seen: set[Any]) -> bool:
    if isinstance(value, type):
        if value.__module__ == "builtins":
            return value.__name__ in _BUILTINS
        return value in _VALUES or _is_plain_record(value)
    if isinstance(value, BuiltinFunctionType):
        is_builtin = value.__module__ == "builtins" and value.__name__ in _BUILTINS
        return is_builtin and getattr(value, "__self__", builtins) is builtins
    if isinstance(value, MethodDescriptorType):
        return value.__name__ in _METHODS
    return value in _FUNCTIONS if value.__hash__ is not None else False


def _is_plain_record(kind: type) -> bool:
    if issubclass(kind, tuple):
        return hasattr(kind, "_fields")
    return is_dataclass(kind) and kind.__new__ is object.__new__ and not hasattr(kind, "__post_init__")


def _is_data(value: Any, depth: int = 0) -> bool:
    """Return whether a value is plain data without code, so that reading it has no effect."""
    kind = type(value)
    if kind in LEAVES or kind in (datetime, time):
        return True
    if kind not in (tuple, list, dict, set, frozenset) or len(value) > _MOST_PARTS or depth == _DEPTH:
        return False
    parts = [*value, *value.values()] if kind is dict else value
    return all(_is_data(part, depth + 1) for part in parts)
