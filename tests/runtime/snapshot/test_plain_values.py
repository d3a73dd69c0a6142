"""Dataclasses as plain values for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import PLAIN_NAME, from_plain, to_plain


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Circle:
    radius: float


@dataclass(frozen=True, slots=True)
class Box:
    width: float
    height: float = 1.0
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Drawing:
    origin: str = field(metadata={PLAIN_NAME: "from"})
    subtask: SubtaskId | None = None
    shapes: tuple[Circle | Box, ...] = ()
    corners: tuple[tuple[int, int], ...] = ()
    extra: Mapping[str, int | Box] = field(default_factory=dict)
    is_done: bool = False


PLAIN: dict[str, Any] = {
    "from": "here",
    "subtask": ["out", 1],
    "shapes": [{"radius": 2}, {"width": 1.5, "height": 2.5, "colour": "blue"}],
    "corners": [[1, 2], [3, 4]],
    "extra": {"n": 3, "box": {"width": 1.0, "height": 1.0, "colour": "red"}},
    "is_done": True,
}

numbers = st.floats(allow_nan=False, allow_infinity=False)
boxes = st.builds(Box, numbers, numbers, st.sampled_from(Colour))
drawings = st.builds(
    Drawing,
    st.text(),
    st.none() | st.builds(SubtaskId, st.text(), st.integers(0)),
    st.lists(boxes | st.builds(Circle, numbers)).map(tuple),
    st.lists(st.tuples(st.integers(), st.integers())).map(tuple),
    st.dictionaries(st.text(), st.integers() | boxes),
    st.booleans(),
)


@given(drawings)
def test_a_dataclass_survives_json(drawing: Drawing) -> None:
    assert from_plain(Drawing, json.loads(json.dumps(to_plain(drawing)))) == drawing


def test_plain_values_have_the_declared_names() -> None:
    drawing = from_plain(Drawing, PLAIN)
    assert (drawing.origin, drawing.subtask, drawing.shapes[1].colour) == (
        "here",
        SubtaskId("out", 1),
        Colour.BLUE,
    )
    assert to_plain(drawing) == PLAIN


def test_unknown_names_are_ignored_and_missing_ones_get_their_default() -> None:
    assert from_plain(Drawing, {"from": "here", "new in the next version": []}) == Drawing("here")
    with pytest.raises(TypeError, match=r"^shapes\[0\]\.radius is missing$"):
        from_plain(Drawing, {"from": "here", "shapes": [{}]})
    with pytest.raises(TypeError, match=r"^from is missing$"):
        from_plain(Drawing, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"from": 3}, r"from is 3, not a valid str"),
        ({"subtask": "ab"}, r"subtask is 'ab', not a valid tuple"),
        ({"subtask": ["out"]}, r"subtask is \['out'\], not a valid tuple"),
        ({"shapes": {}}, r"shapes is \{\}, not a valid tuple"),
        ({"shapes": [{"radius": nan}]}, r"shapes\[0\]\.radius is nan, not a valid float"),
        ({"shapes": [{"radius": -inf}]}, r"shapes\[0\]\.radius is -inf, not a valid float"),
        ({"shapes": [{"radius": 10**400}]}, r"shapes\[0\]\.radius is 1000.*, not a valid float"),
        ({"shapes": [{"width": True}]}, r"shapes\[0\]\.width is True, not a valid float"),
        ({"shapes": [{"width": 1, "colour": "vanished"}]}, r"\.colour is 'vanished', not a valid Colour"),
        ({"shapes": [{"width": 1, "colour": []}]}, r"\.colour is \[\], not a valid Colour"),
        ({"shapes": [3]}, r"shapes\[0\] is 3, not a valid Circle"),
        ({"corners": [[1, 2, 3]]}, r"corners\[0\] is \[1, 2, 3\], not a valid tuple"),
        ({"corners": [[1, 2.0]]}, r"corners\[0\]\[1\] is 2\.0, not a valid int"),
        ({"extra": {"n": "3"}}, r"extra\['n'\] is '3', not a valid int"),
        ({"extra": {1: 1}}, r"a key of extra is 1, not a valid str"),
        ({"extra": []}, r"extra is \[\], not a valid .*Mapping"),
        ({"is_done": 1}, r"is_done is 1, not a valid bool"),
    ],
)
def test_a_value_of_another_type_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        from_plain(Drawing, {**PLAIN, **change})
