"""Named tuples, dataclasses and enums: rebuilt from their content, found by name, never called."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from functools import cached_property, partialmethod, singledispatchmethod
from typing import Any, Generic, NamedTuple, TypeVar

import msgpack
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec

T = TypeVar("T")
Point = namedtuple("Point", ["x", "y"])


class Version(NamedTuple):
    major: int
    minor: int = 0


class LoudVersion(Version):
    """A named tuple with a `__dict__`."""


@dataclass
class Account:
    owner: str
    balance: int = 0
    history: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.balance += 1_000_000

    @cached_property
    def doubled(self) -> int:
        return self.balance * 2


@dataclass(frozen=True, slots=True)
class Slotted:
    left: int
    right: int = field(init=False)


@dataclass(frozen=True)
class Box(Generic[T]):
    content: T


@dataclass
class Parent:
    a: int


@dataclass(slots=True)
class MixedChild(Parent):
    b: int


@dataclass
class OwnPickling:
    kept: int
    dropped: int = 5

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.kept, self.dropped = state["kept"], -1


@dataclass
class WithContent(dict):  # type: ignore[type-arg]
    name: str = ""


@dataclass
class PlainSubclassBase:
    a: int


class PlainSubclass(PlainSubclassBase):
    """A dataclass by inheritance only."""


class Lazy:
    """A property that is computed once, as web frameworks have it: its value hides it."""

    def __init__(self, compute: Callable[[Any], int]) -> None:
        self._compute = compute

    def __get__(self, instance: Any, owner: type) -> int:
        value = self._compute(instance)
        vars(instance)[self._compute.__name__] = value
        return value


@dataclass
class WithMethods:
    """Plain values for all instances, methods, and a field whose default can be called."""

    a: int = 0
    key: Any = len
    shared = 1

    def method(self) -> int:
        return self.a

    @classmethod
    def of_class(cls) -> None: ...

    @staticmethod
    def of_nobody() -> None: ...

    @property
    def read_only(self) -> int:
        return self.a

    @cached_property
    def kept(self) -> int:
        return self.a + 1

    of_part = partialmethod(method)

    @singledispatchmethod
    def of_kind(self, kind: object) -> None: ...

    @Lazy
    def computed_once(self) -> int:
        return self.a + 2


ended: list[int] = []


@dataclass
class WithEnd:
    a: int

    def __del__(self) -> None:
        ended.append(self.a)


class Outer:
    @dataclass
    class Inner:
        a: int


class Suit(Enum):
    HEARTS = 1
    ALSO_HEARTS = 1  # noqa: PIE796
    SPADES = "s"


class Size(IntEnum):
    SMALL = 1


class Name(StrEnum):
    FIRST = "first"


class Right(Flag):
    READ = 1
    WRITE = 2


def through(value: Any) -> Any:
    codec = ValueCodec(allow_pickle=False)
    return codec.loads(codec.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        Point(1, (2,)),
        Version(3),
        Box(Box([Point(1, 2)])),
        MixedChild(1, 2),
        PlainSubclass(1),
        Outer.Inner(3),
        LoudVersion(1, 2),
    ],
    ids=repr,
)
def test_a_record_comes_back_alone_and_in_a_column(value: Any) -> None:
    for back in (through(value), *through([value, value]), through({"a": (value,)})["a"][0]):
        assert back == value
        assert type(back) is type(value)


def test_constructors_are_not_called() -> None:
    account = Account("ann", 5)
    assert account.balance == 1_000_005
    assert through(account).balance == 1_000_005
    assert [back.balance for back in through([account, account])] == [1_000_005] * 2


def test_attributes_beside_the_fields_are_kept() -> None:
    account = Account("ann")
    assert account.doubled == 2_000_000
    for back in (through(account), through([account, Account("bob")])[0]):
        assert vars(back) == vars(account)


def test_a_slot_that_was_never_set_stays_unset() -> None:
    for back in (through(Slotted(1)), through([Slotted(1), Slotted(2)])[0]):
        assert back.left == 1
        assert not hasattr(back, "right")


def test_attributes_of_a_named_tuple_beside_its_fields_are_not_lost() -> None:
    loud = LoudVersion(1, 2)
    loud.note = "x"  # type: ignore[attr-defined]
    with pytest.raises(CodecError, match="LoudVersion can only be pickled"):
        ValueCodec(allow_pickle=False).dumps(loud)
    codec = ValueCodec()
    assert codec.loads(codec.dumps([loud, loud]))[1].note == "x"


def test_a_class_with_its_own_pickling_or_content_is_pickled() -> None:
    codec = ValueCodec()
    assert codec.loads(codec.dumps(OwnPickling(1))) == OwnPickling(1, -1)
    back = codec.loads(codec.dumps(WithContent("n")))
    assert (type(back), back.name) == (WithContent, "n")
    assert codec.pickled == 2


@pytest.mark.parametrize("value", [*Suit, *Size, *Name, *Right, Right.READ | Right.WRITE, Right(0)], ids=repr)
def test_an_enum_member_comes_back_as_the_member_itself(value: Enum) -> None:
    assert through(value) is value
    assert through([value, value])[1] is value
    assert list(through({value: 1})) == [value]


def version(fields: list[Any], name: str = "Evolving") -> type:
    cls = make_dataclass(name, fields)
    cls.__module__ = "some_job"
    return cls


def test_a_new_field_takes_its_default() -> None:
    old = version([("b", int), ("a", int)])
    new = version([("a", int), ("b", int), ("c", int, 7)])
    writer, reader = ValueCodec(classes=[old]), ValueCodec(classes=[new])
    for back in (reader.loads(writer.dumps(old(2, 1))), *reader.loads(writer.dumps([old(2, 1)] * 2))):
        assert back == new(1, 2, 7)


def test_a_field_that_is_gone_or_lacks_a_default_is_an_error_that_names_it() -> None:
    old, new = version([("a", int), ("b", int)]), version([("a", int), ("c", int)])
    shorter = version([("a", int)])
    data = ValueCodec(classes=[old]).dumps([old(1, 2)])
    with pytest.raises(CodecError, match=r"some_job.Evolving no longer has the field\(s\) b"):
        ValueCodec(classes=[new]).loads(data)
    data = ValueCodec(classes=[shorter]).dumps([shorter(1)] * 3)
    with pytest.raises(CodecError, match=r"has new field\(s\) c .*Give each new field a plain default"):
        ValueCodec(classes=[new]).loads(data)


def test_an_enum_member_that_is_gone_is_an_error_that_names_it() -> None:
    old, new = Enum("Kind", ["A", "B"], module="some_job"), Enum("Kind", ["B"], module="some_job")
    data = ValueCodec(classes=[old]).dumps([old["A"], old["B"]])
    with pytest.raises(CodecError, match=r"some_job\.Kind no longer has the member 'A'"):
        ValueCodec(classes=[new]).loads(data)


def test_a_class_that_no_reader_could_find_is_refused_when_it_is_written() -> None:
    @dataclass
    class Local:
        a: int

    class LocalEnum(Enum):
        A = 1

    for value in (Local(1), [Local(1), Local(2)], LocalEnum.A):
        with pytest.raises(CodecError, match=r"not find the class under this name.*classes="):
            ValueCodec().dumps(value)


def test_classes_that_are_handed_in_are_found() -> None:
    @dataclass
    class Local:
        a: int

    class Plain:
        def __init__(self, a: int) -> None:
            self.a = a

    writer, reader = ValueCodec(classes=[Local, Plain]), ValueCodec(classes=[Local, Plain])
    record, plain, several = reader.loads(writer.dumps((Local(1), Plain(2), [Plain(3), Plain(4)])))
    assert (record, plain.a, [p.a for p in several]) == (Local(1), 2, [3, 4])
    assert type(plain) is Plain


def encoded_record(module: str, qualname: str) -> bytes:
    state = msgpack.ExtType(5, msgpack.packb(["x"]))
    return msgpack.packb(msgpack.ExtType(13, msgpack.packb([module, qualname, ["a"], state])))


@pytest.mark.parametrize(
    ("module", "qualname", "what"),
    [
        ("os", "system", "no such class is known"),
        ("builtins", "eval", "no such class is known"),
        ("builtins", "dict", "is neither a named tuple nor a dataclass"),
        ("subprocess", "Popen", "is neither a named tuple nor a dataclass"),
        ("no.such.module", "X", "no such class is known"),
        ("os", "path.join", "no such class is known"),
        ("", "", "no such class is known"),
    ],
)
def test_data_that_names_anything_but_a_record_is_refused(module: str, qualname: str, what: str) -> None:
    sys.modules["subprocess"]  # loaded: pytest itself needs it
    with pytest.raises(CodecError, match=what):
        ValueCodec().loads(encoded_record(module, qualname))
    enum = msgpack.packb(msgpack.ExtType(15, msgpack.packb([module, qualname, "A"])))
    with pytest.raises(CodecError):
        ValueCodec().loads(enum)


def test_without_pickle_data_cannot_make_a_module_be_imported() -> None:
    assert "this" not in sys.modules
    with pytest.raises(CodecError, match="no such class is known"):
        ValueCodec(allow_pickle=False).loads(encoded_record("this", "X"))
    assert "this" not in sys.modules


def test_a_record_with_too_few_values_is_refused() -> None:
    state = msgpack.ExtType(5, msgpack.packb([1]))
    payload = msgpack.packb([Point.__module__, "Point", ["x", "y"], state])
    with pytest.raises(CodecError, match="one value per field"):
        ValueCodec().loads(msgpack.packb(msgpack.ExtType(13, payload)))


def record_with(cls: type, attributes: dict[str, Any]) -> bytes:
    """An encoded record with these attributes, as a stranger may write one."""
    state = msgpack.ExtType(9, msgpack.packb([list(attributes), list(attributes.values())]))
    payload = [cls.__module__, cls.__qualname__, [], state]
    return msgpack.packb(msgpack.ExtType(13, msgpack.packb(payload)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "name",
    [
        *("__reduce_ex__", "__module__", "__class__", "__call__", "__anything__"),
        *("method", "of_class", "of_nobody", "of_part", "of_kind", "read_only"),
    ],
)
def test_without_pickle_no_attribute_of_the_data_hides_a_method(name: str) -> None:
    data = record_with(WithMethods, {"a": 1, name: "x"})
    with pytest.raises(CodecError, match=f"attribute '{name}', which hides a method"):
        ValueCodec(allow_pickle=False).loads(data)
    assert vars(ValueCodec().loads(record_with(WithMethods, {"a": 1, "__orig_class__": 2}))) == {
        "a": 1,
        "__orig_class__": 2,
    }


def test_without_pickle_attributes_that_hide_no_method_are_kept() -> None:
    value = WithMethods(1, 2)
    value.shared = 5
    value.note = "beside"  # type: ignore[attr-defined]
    value._WithMethods__private = 7  # type: ignore[attr-defined]
    assert (value.kept, value.computed_once) == (2, 3)
    codec = ValueCodec(allow_pickle=False)
    for _ in range(2):
        assert vars(codec.loads(codec.dumps(value))) == vars(value)


def test_a_record_whose_attribute_hides_a_method_needs_pickle_to_be_written() -> None:
    value = WithMethods(1, 2)
    value.method = "x"  # type: ignore[method-assign, assignment]
    assert vars(ValueCodec().loads(ValueCodec().dumps(value))) == vars(value)
    with pytest.raises(CodecError, match="WithMethods can only be pickled"):
        ValueCodec(allow_pickle=False).dumps(value)


def test_a_class_with_an_end_of_its_own_needs_pickle() -> None:
    """Its `__del__` would run with whatever the data says."""
    value = WithEnd(1)
    codec = ValueCodec()
    assert codec.loads(codec.dumps(value)) == value
    assert codec.pickled == 1
    with pytest.raises(CodecError, match="WithEnd can only be pickled"):
        ValueCodec(allow_pickle=False).dumps(value)
    ended.clear()
    written_before = record_with(WithEnd, {"a": 5})
    with pytest.raises(CodecError, match="WithEnd, whose `__del__` would run"):
        ValueCodec(allow_pickle=False).loads(written_before)
    assert ended == []
    assert ValueCodec().loads(written_before) == WithEnd(5)


def test_combined_flags_are_found_by_their_names_when_their_values_have_changed() -> None:
    codec = ValueCodec(allow_pickle=False)
    both = Right.READ | Right.WRITE
    data = codec.dumps([both, [both, Right.READ], Right(0)])

    class Right2(Flag):
        EXECUTE = 1
        READ = 2
        WRITE = 4

    now = Right2.READ | Right2.WRITE
    Right2.__module__, Right2.__qualname__ = Right.__module__, Right.__qualname__
    reader = ValueCodec(allow_pickle=False, classes=[Right2])
    assert reader.loads(data) == [now, [now, Right2.READ], Right2(0)]


class Telling(IntFlag):
    """Flags with a method of their own for combinations, which notes its calls."""

    READ = 1
    WRITE = 2

    @classmethod
    def _missing_(cls, value: object) -> Any:
        CALLS.append(value)
        return super()._missing_(value)


CALLS: list[object] = []


@pytest.mark.parametrize("number", [2 | 1, 4, 1 << 70])
def test_data_calls_no_method_of_flags_without_pickle(number: int) -> None:
    data = ValueCodec(allow_pickle=False).dumps([Telling(number), Telling(number)])
    Telling._value2member_map_.pop(number, None)
    CALLS.clear()
    with pytest.raises(CodecError, match=r"the flags \d+ of .*Telling. Only the class's own code can make"):
        ValueCodec(allow_pickle=False).loads(data)
    assert not CALLS
    assert ValueCodec(allow_pickle=True).loads(data) == [number, number]
    assert set(CALLS) == {number}


def test_flags_whose_members_are_made_by_a_type_of_their_own_are_not_made_without_pickle() -> None:
    class Number(int):
        pass

    class Kind(Number, Flag):
        READ = 1
        WRITE = 2

    codec = ValueCodec(allow_pickle=False, classes=[Kind])
    data = codec.dumps([Kind.READ, Kind.READ | Kind.WRITE])
    assert codec.loads(data) == [Kind.READ, Kind.READ | Kind.WRITE]  # it is known
    del Kind._value2member_map_[3]
    with pytest.raises(CodecError, match="Only the class's own code can make"):
        codec.loads(data)


def test_a_combination_with_a_flag_that_is_gone_is_refused() -> None:
    data = ValueCodec(allow_pickle=False).dumps(Right.READ | Right.WRITE)

    class Right3(Flag):
        READ = 1

    Right3.__module__, Right3.__qualname__ = Right.__module__, Right.__qualname__
    with pytest.raises(CodecError, match="no longer has the member 'WRITE'"):
        ValueCodec(allow_pickle=False, classes=[Right3]).loads(data)
