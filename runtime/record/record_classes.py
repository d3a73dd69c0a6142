"""Values of users' classes: found by name, rebuilt from their fields, or pickled.

**Names.** A class of Penstock has a name of its own in data (`stable_names.py`). Any other class is looked up
among the given classes, then in its module. Classes of a job's `__main__` must be given, because a worker has
another `__main__`. Lookups read namespaces directly: they use no module-level `__getattr__` and no
descriptor, and call nothing. `trust/data.py` says when a module may be imported.

**Shapes** of named tuples and dataclasses. A record is rebuilt from its fields without calling `__init__`,
`__new__` or `__post_init__`. A channel must not change a value, as a constructor might. So a class has a
shape only when its fields and other attributes are its whole state. A class has no shape if it has its own
pickling, a `__del__` or a builtin base with content of its own. A dataclass with its own `__new__` has no
shape, either.

Field names are written with the values. If a class has changed between a savepoint and its restore, fields
are matched by name. A new field takes its plain default value. A removed field is an error, because its data
would be lost. An instance may have attributes besides its fields. They are kept, too.

**Pickle** is the last resort. Some values can be pickled but not unpickled, such as an exception whose
`__init__` needs arguments that are not pickled. A checkpoint with such a value could never be read. So every
pickle is read once when it is written, and a value that can't be read is refused there. That nearly doubles
the time of writing a pickle; decision 34 has figures. If the directory has its own name for a class, pickles
use that name, too. So a pickle that may name a module of Penstock is made a second time, by a slower pickler.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import pickle
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from operator import attrgetter
from types import MemberDescriptorType, ModuleType
from typing import Any, Final

from penstock.runtime.error_text import error_text, message_of
from penstock.runtime.errors import CodecError
from penstock.runtime.record.stable_names import OURS, home_of, is_ours, name_in_data
from penstock.runtime.trust.data import PicklePolicy, hidden_method


def describe_type(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


class ClassDirectory:
    """Maps a class to the two parts of its name in data, and back: its module and its qualified name.

    Example:
        >>> from fractions import Fraction
        >>> directory = ClassDirectory(PicklePolicy(allowed=True))
        >>> directory.find(*directory.name_of(Fraction)) is Fraction
        True
    """

    def __init__(self, policy: PicklePolicy, classes: Iterable[type] = ()) -> None:
        self._given: dict[tuple[str, str], type] = {(c.__module__, c.__qualname__): c for c in classes}
        self._policy = policy
        self.given = frozenset(self._given.values())
        self._found: dict[tuple[str, str], type] = {}

    def name_of(self, cls: type) -> tuple[str, str]:
        stable = name_in_data(cls)
        name = (cls.__module__, cls.__qualname__) if stable is None else (OURS, stable)
        if stable is None and is_ours(cls.__module__):
            msg = (
                f"values of {describe_type(cls)} can't be encoded: this class of Penstock has no stable "
                "name in data. Keep its content in a class of your own or in plain values. Developers of "
                "Penstock add the class to runtime/record/stable_names.py"
            )
            raise CodecError(msg)
        if self._look_up(*name) is not cls:  # not from the cache: a notebook may define a class again
            msg = (
                f"values of {describe_type(cls)} can't be encoded: a reader would not find the class under "
                "this name. Define it at the top level of a module that every worker can import, "
                "or hand it to the codec (classes=[...])"
            )
            raise CodecError(msg)
        return name

    def find(self, module: str, qualname: str) -> type:
        key = (module, qualname)
        cls = self._found.get(key) or self._look_up(module, qualname)
        if cls is None:
            raise CodecError(_unknown(module, qualname))
        self._found[key] = cls
        return cls

    def _look_up(self, module: str, qualname: str) -> type | None:
        home = home_of(module, qualname)
        if home is not None:
            # The table is fixed: the data chooses among these modules and no others.
            return _class_in(_imported(home[0]), home[1])
        return self._given.get((module, qualname)) or _class_in(self._module(module), qualname)

    def _module(self, name: str) -> ModuleType | None:
        return _imported(name) if self._policy.may_import(name) else sys.modules.get(name)


def _unknown(module: str, qualname: str) -> str:
    if module == OURS or is_ours(module):
        return (
            f"the data holds a value of Penstock's class {qualname} ({module}), which this version does not "
            "know: another version wrote it. Read it with that version"
        )
    return (
        f"the data holds a value of {module}.{qualname}, but no such class is known in this process. "
        "Make its module importable by every worker, import it in the job's program, "
        "or hand the class to the codec (classes=[...])"
    )


def _imported(name: str) -> ModuleType | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module exists, and one that it imports is missing
        return None


def _class_in(module: ModuleType | None, qualname: str) -> type | None:
    found: object = module
    for part in qualname.split("."):
        if not isinstance(found, (ModuleType, type)):
            return None
        found = vars(found).get(part)
    return found if isinstance(found, type) else None


_set = object.__setattr__
#: Methods that define an instance's state; a class with its own version of one has no shape.
_PLAIN_METHODS: Final[Mapping[str, tuple[Any, ...]]] = {
    "__reduce_ex__": (object.__reduce_ex__,),
    "__reduce__": (object.__reduce__,),
    "__getattribute__": (object.__getattribute__, tuple.__getattribute__),
    # A dataclass with slots=True and frozen=True has the second function.
    "__getstate__": (object.__getstate__, getattr(dataclasses, "_dataclass_getstate", None)),
}

_plain_new: Final[Any] = object.__new__


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The fields of one named tuple or dataclass.

    Attributes:
        defaults: Plain default values by field.
        harmless: Cache of attributes that hide no method.
    """

    cls: type
    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    is_tuple: bool
    has_dict: bool
    in_dict: frozenset[str]
    slots: frozenset[str]
    values: Callable[[Any], tuple[Any, ...]]
    harmless: set[str] = field(default_factory=set, compare=False)

    def state_of(self, record: Any) -> tuple[Any, ...] | dict[str, Any] | None:
        """Return the field values of an instance.

        For a dataclass whose attributes are not exactly its fields, return all its attributes by name. For a
        named tuple with other attributes, return `None`.
        """
        if not self.has_dict or vars(record).keys() == self.in_dict:
            try:
                return self.values(record)
            except AttributeError:  # a slot that was never set
                pass
        if self.is_tuple:
            return None
        slots = {name: getattr(record, name) for name in sorted(self.slots) if hasattr(record, name)}
        return {**slots, **vars(record)} if self.has_dict else slots

    def states_of(self, records: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        """The field values of many instances; `None` if one of them has other attributes."""
        if self.has_dict:
            expected = self.in_dict
            if any(attributes.keys() != expected for attributes in map(vars, records)):
                return None
        try:
            return list(map(self.values, records))
        except AttributeError:
            return None

    def hides_method(self, names: Collection[str]) -> str | None:
        """Return the `hidden_method` of these attributes; cache attributes that hide none."""
        if self.harmless.issuperset(names):
            return None
        hidden = hidden_method(self.cls, self.names, names)
        if hidden is None:
            self.harmless.update(names)
        return hidden

    def build(self, names: Sequence[str], state: Any) -> Any:
        if type(state) is tuple:
            if len(state) != len(names) or tuple(names) != self.names:
                (state,) = self._fitted(names, [state])
            if self.is_tuple:
                return tuple.__new__(self.cls, state)
            record: Any = object.__new__(self.cls)
            for name, value in zip(self.names, state, strict=True):
                _set(record, name, value)
            return record
        if self.is_tuple or type(state) is not dict or not all(type(name) is str for name in state):
            msg = f"the state of a {describe_type(self.cls)} is neither its fields nor its attributes"
            raise CodecError(msg)
        record = object.__new__(self.cls)
        for name, value in state.items():
            if name in self.slots:
                _set(record, name, value)
            else:
                vars(record)[name] = value
        return record

    def build_all(self, names: Sequence[str], states: Sequence[tuple[Any, ...]]) -> list[Any]:
        states = self._fitted(names, states)
        if self.is_tuple:
            return list(map(partial(tuple.__new__, self.cls), states))
        records: list[Any] = list(map(object.__new__, repeat(self.cls, len(states))))
        # `setattr` is twice as fast, but calls `__setattr__`, which a frozen class overrides.
        assign = setattr if getattr(self.cls, "__setattr__", None) is _set else _set
        for name, column in zip(self.names, zip(*states, strict=True), strict=False):
            deque(map(assign, records, repeat(name), column), maxlen=0)  # runs the map, keeps nothing
        return records

    def _fitted(self, names: Sequence[str], states: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        if set(map(type, states)) - {tuple} or set(map(len, states)) - {len(names)}:
            msg = f"the data of a {describe_type(self.cls)} does not have one value per field"
            raise CodecError(msg)
        if tuple(names) == self.names:
            return states
        return [self._evolve(names, state) for state in states]

    def _evolve(self, names: Sequence[str], state: tuple[Any, ...]) -> tuple[Any, ...]:
        written = dict(zip(names, state, strict=True))
        gone = written.keys() - set(self.names)
        if gone:
            msg = (
                f"{describe_type(self.cls)} no longer has the field(s) {', '.join(sorted(gone))} that the "
                "data holds. Keep the field(s), or read the data with the old class and write it again"
            )
            raise CodecError(msg)
        missing = [name for name in self.names if name not in written and name not in self.defaults]
        if missing:
            msg = (
                f"{describe_type(self.cls)} has new field(s) {', '.join(missing)} that the data does not "
                "hold. Give each new field a plain default value"
            )
            raise CodecError(msg)
        return tuple(written[name] if name in written else self.defaults[name] for name in self.names)


def shape_of(cls: type, *, may_finalize: bool = False) -> RecordShape | None:
    """The shape of a named tuple or dataclass class; `None` for a class that has none.

    Example:
        >>> from collections import namedtuple
        >>> shape_of(namedtuple("Point", "x y")).names
        ('x', 'y')
        >>> shape_of(dict) is None
        True
    """
    if not all(getattr(cls, name) in plain for name, plain in _PLAIN_METHODS.items()):
        return None
    if hasattr(cls, "__del__") and not may_finalize:
        return None
    if issubclass(cls, tuple):
        return _named_tuple_shape(cls)
    return _dataclass_shape(cls) if dataclasses.is_dataclass(cls) else None


def _named_tuple_shape(cls: type[tuple[Any, ...]]) -> RecordShape | None:
    names = getattr(cls, "_fields", None)
    if (
        type(names) is not tuple
        or not all(type(name) is str for name in names)
        or hasattr(cls, "__setstate__")
    ):
        return None
    defaults = dict(getattr(cls, "_field_defaults", {}))
    return RecordShape(cls, names, defaults, True, cls.__dictoffset__ != 0, frozenset(), frozenset(), tuple)


def _dataclass_shape(cls: type) -> RecordShape | None:
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    slots = frozenset(
        name
        for base in cls.__mro__
        for name, kind in vars(base).items()
        if isinstance(kind, MemberDescriptorType)
    )
    own_state = getattr(cls, "__setstate__", None)
    if (
        cls.__new__ is not _plain_new
        or (own_state is not None and own_state.__module__ != "dataclasses")
        or not slots <= set(names)
        or any(name not in slots and _is_data_descriptor(cls, name) for name in names)
    ):
        return None
    has_dict = cls.__dictoffset__ != 0
    if not has_dict and slots != set(names):
        return None
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    in_dict = frozenset(names) - slots
    return RecordShape(cls, names, defaults, False, has_dict, in_dict, slots, _getter(names))


def _is_data_descriptor(cls: type, name: str) -> bool:
    return hasattr(type(inspect.getattr_static(cls, name, None)), "__set__")


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda record: ()
    if len(names) == 1:
        single = attrgetter(names[0])
        return lambda record: (single(record),)
    return attrgetter(*names)


_PROTOCOL: Final = 5
#: Prefix of the names of Penstock's modules.
_OUR_MODULES: Final = f"{OURS}.".encode()
#: Pickle recreates values of subclasses of these types by `__new__`, which may interpret arguments
#: differently.
_ATOMIC_BASES: Final = (int, float, complex, str, bytes, tuple)


class PickleFallback:
    """Pickles and unpickles for one codec, and counts the values that it pickled."""

    def __init__(self, policy: PicklePolicy, classes: ClassDirectory) -> None:
        self._policy = policy
        self.pickled = 0
        self._classes = classes
        self._given = classes.given

    def dumps(self, value: Any, cls: type) -> bytes:
        data, back = self._pickled(value, cls, 1)
        self._check_same(cls, [value], [back])
        return data

    def dumps_all(self, values: list[Any], cls: type) -> bytes:
        data, back = self._pickled(values, cls, len(values))
        self._check_same(cls, values, back)
        return data

    def loads_all(self, data: bytes) -> list[Any]:
        values = self.loads(data)
        if type(values) is not list:
            msg = f"a pickled column holds a {type(values).__name__} instead of a list: the data is damaged"
            raise CodecError(msg)
        return values

    def _pickled(self, value: Any, cls: type, count: int) -> tuple[bytes, Any]:
        name = describe_type(cls)
        self._policy.check_writing(name)
        try:
            data, is_plain = self._pickle(value)
        except BaseException as error:  # any error of the value's own methods
            msg = (
                f"a value of type {name} can't be pickled: {message_of(error)}. "
                "Turn it into a dataclass, a named tuple or plain values"
            )
            raise CodecError(msg) from error
        try:
            back = pickle.loads(data) if is_plain else self._read(data)
        except BaseException as error:  # any error of the class's own methods
            raise self._unreadable(cls, error_text(error)) from error
        self.pickled += count
        return data, back

    def _unreadable(self, cls: type, why: str) -> CodecError:
        what = "its text" if issubclass(cls, BaseException) else "a dataclass or plain values"
        return CodecError(
            f"a value of type {describe_type(cls)} can be pickled but not read back: {why}. Keep {what} "
            "instead, or give the class a matching __reduce__"
        )

    def _check_same(self, cls: type, values: list[Any], back: list[Any]) -> None:
        """Refuse values read back as another type, and changed values of subclasses of `int` and the like."""
        for kind in map(type, back):
            if kind is not cls:
                raise self._unreadable(cls, f"it is read back as a value of type {describe_type(kind)}")
        base: Any = next((base for base in _ATOMIC_BASES if issubclass(cls, base)), None)
        if base is None or cls.__new__ is base.__new__:
            return
        for value, read in zip(values, back, strict=True):
            if base.__repr__(value) != base.__repr__(read):
                why = f"its __new__ turns {base.__repr__(value):.80} into {base.__repr__(read):.80}"
                raise self._unreadable(cls, why)

    def _read(self, data: bytes) -> Any:
        return _DirectoryUnpickler(io.BytesIO(data), self._classes).load()

    def _pickle(self, value: Any) -> tuple[bytes, bool]:
        if not self._given:
            data = pickle.dumps(value, _PROTOCOL)
            if _OUR_MODULES not in data:
                return data, True
        target = io.BytesIO()
        _DirectoryPickler(target, self._classes).dump(value)
        return target.getvalue(), False

    def loads(self, data: bytes) -> Any:
        self._policy.check_reading()
        try:
            return self._read(data)
        except BaseException as error:  # any error: it depends on the bytes
            msg = f"a pickled value can't be read: {error_text(error)}"
            raise CodecError(msg) from error


class _DirectoryPickler(pickle.Pickler):
    """Names classes as the directory does: plain pickle would refuse some, and name the modules of others."""

    def __init__(self, target: io.BytesIO, classes: ClassDirectory) -> None:
        super().__init__(target, _PROTOCOL)
        self._classes = classes
        self._given = classes.given

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, type) and (obj in self._given or name_in_data(obj) is not None):
            return self._classes.name_of(obj)
        return None


class _DirectoryUnpickler(pickle.Unpickler):
    def __init__(self, source: io.BytesIO, classes: ClassDirectory) -> None:
        super().__init__(source)
        self._classes = classes

    def persistent_load(self, pid: Any) -> Any:
        module, qualname = pid
        return self._classes.find(module, qualname)

    def find_class(self, module: str, name: str) -> Any:
        """Find the class or function that a pickle names; the directory resolves short names of Penstock."""
        if home_of(module, name) is not None:
            return self._classes.find(module, name)
        return super().find_class(module, name)
