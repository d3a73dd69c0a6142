"""The last resort for values that the format has no kind for: pickle, counted, and refusable.

A value may pickle and not unpickle, such as an exception whose `__init__` takes other arguments than it
pickles. A checkpoint with it could never be read. So every pickle is read once when it is written, and a
value that can't be read is refused there. That doubles the time of writing one; decision 34 has figures.

Classes that the directory knows by a name of their own have that name in pickles, too. For this a pickle is
made a second time, by a slower pickler, if it may name a module of Penstock.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Final

from penstock.runtime.error_text import error_text, message_of
from penstock.runtime.errors import CodecError
from penstock.runtime.record.record_classes import ClassDirectory, describe_type
from penstock.runtime.record.stable_names import OURS, home_of, name_in_data
from penstock.runtime.trust.pickles import PicklePolicy

_PROTOCOL: Final = 5
#: What the name of each of Penstock's modules begins with.
_OUR_MODULES: Final = f"{OURS}.".encode()
#: Pickle makes values of their subclasses by `__new__`, whose arguments may mean something else.
_ATOMIC_BASES: Final = (int, float, complex, str, bytes, tuple)


class PickleFallback:
    """Pickles and unpickles for one codec."""

    def __init__(self, policy: PicklePolicy, classes: ClassDirectory) -> None:
        self._policy = policy
        self.pickled = 0
        self._classes = classes
        self._given = classes.given

    def dumps(self, value: Any, cls: type) -> bytes:
        data, back = self._pickled(value, cls, 1)
        if type(back) is not type(value):
            raise self._unreadable(cls, f"it comes back as a value of type {describe_type(type(back))}")
        self._check_content(cls, [value], [back])
        return data

    def dumps_all(self, values: list[Any], cls: type) -> bytes:
        data, back = self._pickled(values, cls, len(values))
        for kind in map(type, back):
            if kind is not cls:
                raise self._unreadable(cls, f"it comes back as a value of type {describe_type(kind)}")
        self._check_content(cls, values, back)
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
        what = "keep its text" if issubclass(cls, BaseException) else "keep a dataclass or plain values"
        return CodecError(
            f"a value of type {describe_type(cls)} can be pickled and not be read back: {why}. Instead of it "
            f"{what}, or give the class a __reduce__ that fits it"
        )

    def _check_content(self, cls: type, values: list[Any], back: list[Any]) -> None:
        """Refuse a subclass of `int`, `str` and the like whose own `__new__` makes another value."""
        base: Any = next((base for base in _ATOMIC_BASES if issubclass(cls, base)), None)
        if base is None or cls.__new__ is base.__new__:
            return
        for value, read in zip(values, back, strict=True):
            if base.__repr__(value) != base.__repr__(read):
                why = f"its __new__ makes {base.__repr__(read):.80} of {base.__repr__(value):.80}"
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
        except BaseException as error:  # anything: the bytes decide what goes wrong
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
        """A class or function by the name that plain pickle gave it; ours may have moved since."""
        if home_of(module, name) is not None:
            return self._classes.find(module, name)
        return super().find_class(module, name)
