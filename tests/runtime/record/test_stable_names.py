"""Classes of Penstock in data: by names that stay, found wherever they are now."""

from __future__ import annotations

import importlib
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum

import pytest
from door import public_values

from penstock import JobStatus
from penstock.connectors import DeadLetter
from penstock.runtime.errors import CodecError, OperatorLocation
from penstock.runtime.record.record_classes import ClassDirectory, PickleFallback, shape_of
from penstock.runtime.record.stable_names import (
    HOMES,
    home_of,
    is_ours,
    name_in_data,
    name_in_hash,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.trust.data import PicklePolicy
from penstock.windows import TimeWindow


@dataclass
class OfAUser:
    letter: DeadLetter


class Plain:
    def __init__(self, letter: DeadLetter) -> None:
        self.letter = letter


def letter() -> DeadLetter:
    return DeadLetter("text", "bad", "here:1")


# -- the tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOMES)
def test_a_name_leads_to_a_class_and_the_class_to_its_name(name: str) -> None:
    module, _, qualname = HOMES[name].rpartition(".")
    cls = vars(importlib.import_module(module))[qualname]
    assert (cls.__module__, cls.__qualname__) == (module, qualname)
    assert name_in_data(cls) == name


def test_every_public_record_and_enum_has_a_name() -> None:
    ours = [cls for cls in public_values().values() if isinstance(cls, type) and is_ours(cls.__module__)]
    values = [cls for cls in ours if issubclass(cls, Enum) or shape_of(cls) is not None]
    assert values
    assert [cls for cls in values if name_in_data(cls) is None] == []


def test_a_class_is_known_by_its_name_and_by_no_module_of_ours() -> None:
    module, _, qualname = HOMES["DeadLetter"].rpartition(".")
    assert home_of("penstock", "DeadLetter") == (module, qualname)
    assert home_of(module, "DeadLetter") is None
    assert home_of("elsewhere", "DeadLetter") is None


def test_the_hash_of_a_key_knows_a_class_by_the_name_that_stays() -> None:
    assert name_in_hash(DeadLetter) == "penstock:DeadLetter"
    assert name_in_hash(OfAUser) == f"{__name__}.OfAUser"


# -- what is written -----------------------------------------------------------------------------------------


STATUS = JobStatus.FAILED
VALUES = (
    letter(),
    [letter()] * 3,
    (TimeWindow(0, 1), [TimeWindow(2, 3)]),
    STATUS,
    [STATUS] * 2,
    slice(letter(), TimeWindow(0, 1)),
    [slice(letter())] * 2,
    DeadLetter,
)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_of_our_classes_name_no_module_of_ours(value: object) -> None:
    codec = ValueCodec()
    data = codec.dumps(value)
    assert b"penstock." not in data
    assert codec.loads(data) == value


def test_a_user_s_class_is_written_by_its_module() -> None:
    codec = ValueCodec(classes=[OfAUser])
    data = codec.dumps(OfAUser(letter()))
    assert __name__.encode() in data
    assert codec.loads(data) == OfAUser(letter())


def test_our_classes_have_their_names_within_pickles_of_classes_that_were_handed_in() -> None:
    codec = ValueCodec(classes=[Plain])
    data = codec.dumps(Plain(letter()))
    assert codec.pickled == 1
    assert b"penstock." not in data
    assert codec.loads(data).letter == letter()


def test_text_that_looks_like_a_module_of_ours_is_no_class() -> None:
    codec = ValueCodec()
    value = slice("penstock.runtime.errors", b"penstock.", "DeadLetter")
    assert codec.loads(codec.dumps(value)) == value


def test_a_class_of_ours_without_a_name_is_refused() -> None:
    with pytest.raises(CodecError, match="OperatorLocation can't be encoded: this class of Penstock has no"):
        ValueCodec().dumps(OperatorLocation("map", 0, 1))


# -- what is read --------------------------------------------------------------------------------------------


def test_a_class_that_only_another_version_has_is_said_to_be_one() -> None:
    data = ValueCodec().dumps(letter()).replace(b"DeadLetter", b"LiveLetter")
    with pytest.raises(
        CodecError, match=r"Penstock's class LiveLetter \(penstock\), which this version does not"
    ):
        ValueCodec().loads(data)


READS = """
import sys
from penstock.runtime.record.value_codec import ValueCodec
home = {home!r}
assert home not in sys.modules
value = ValueCodec(allow_pickle=False).loads(bytes.fromhex({data!r}))
assert home in sys.modules
print(type(value).__name__)
"""


def test_without_pickle_our_own_modules_are_imported_all_the_same() -> None:
    """In a process that has loaded nothing but the codec."""
    home, _, _ = HOMES["FileSplit"].rpartition(".")
    split = importlib.import_module(home).FileSplit("/a", 10, 0, 5)
    program = READS.format(home=home, data=ValueCodec().dumps(split).hex())
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("FileSplit\n", "")


def test_pickled_functions_and_classes_of_others_are_found_as_ever() -> None:
    fallback = PickleFallback(PicklePolicy(True), ClassDirectory(PicklePolicy(True)))
    assert fallback.loads(fallback.dumps([len, OfAUser, slice], list)) == [len, OfAUser, slice]
