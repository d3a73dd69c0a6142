"""Classes of a program that are pickled with its job."""

from __future__ import annotations

import dataclasses
import enum
import fractions
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest

from penstock.actors.shared.graph_shipping import LARGEST_CLASS, classes_of, main_classes

SCRIPT = """
import dataclasses, enum, threading
from fractions import Fraction
from typing import NamedTuple

class Colour(enum.Enum):
    RED = 1

@dataclasses.dataclass
class Shape:
    colour: Colour
    class Kind(enum.Enum):
        ROUND = 1

class Point(NamedTuple):
    x: int

class HoldsALock:
    lock = threading.Lock()

class HoldsMuch:
    data = bytes(10_000_000)

Alias = Shape
"""


@pytest.fixture
def main() -> Iterator[ModuleType]:
    """A `__main__` with some classes."""
    module = ModuleType("__main__")
    before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        exec(SCRIPT, module.__dict__)
        yield module
    finally:
        sys.modules["__main__"] = before


def test_record_classes_and_enums_of_the_script_travel_with_nested_ones(main: ModuleType) -> None:
    names = [cls.__qualname__ for cls in main_classes()]
    assert sorted(names) == ["Colour", "Point", "Shape", "Shape.Kind"]


def test_a_class_that_is_imported_is_left_to_its_module(main: ModuleType) -> None:
    assert fractions.Fraction not in classes_of(main)


def test_classes_that_can_not_be_pickled_are_left_out_silently(main: ModuleType) -> None:
    defined = {cls.__qualname__ for cls in classes_of(main)}
    assert {"HoldsALock", "HoldsMuch"} <= defined
    assert len(main.HoldsMuch.data) > LARGEST_CLASS


def test_classes_that_name_each_other_are_found_once() -> None:
    module = ModuleType("here")

    class A:
        pass

    class B:
        a = A

    A.b = B  # type: ignore[attr-defined]
    for cls in (A, B):
        cls.__module__ = "here"
        setattr(module, cls.__name__, cls)
    assert classes_of(module) == [A, B]


def test_an_imported_class_is_not_one_of_this_module() -> None:
    own = classes_of(sys.modules[__name__])
    assert not {ModuleType, dataclasses.Field, enum.Enum, threading.Thread, NamedTuple} & set(own)
