"""Values of an Arrow column come back equal and of the same type, or are refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.record.arrow_types import NoArrowTypeError, arrow_type_of, unified_type
from penstock.runtime.record.arrow_values import from_arrow, to_arrow

ZONES = (None, UTC, timezone(timedelta(hours=-5, minutes=-30)), ZoneInfo("Europe/Berlin"))
FIRST, LAST = datetime(1, 1, 3), datetime(9999, 12, 29)  # noqa: DTZ001 # room for every zone's offset
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
#: A strategy for the values of a column.
Values = st.SearchStrategy[Any]


def leaves() -> st.SearchStrategy[Values]:
    return st.sampled_from(
        [
            st.booleans(),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 2**64 - 1),
            st.floats(allow_nan=False),
            TEXT,
            st.binary(max_size=4),
            st.dates(),
            st.times(),
            st.timedeltas(timedelta(-100_000_000), timedelta(100_000_000)),
            st.decimals(-(10**12), 10**12, places=6),
            # Times that a zone's clocks left out stand for no moment.
            *(
                st.datetimes(FIRST, LAST, timezones=st.just(zone), allow_imaginary=zone is None)
                for zone in ZONES
            ),
        ]
    )


def nested(inner: st.SearchStrategy[Values]) -> st.SearchStrategy[Values]:
    present = inner.map(lambda values: st.none() | values)
    parts = st.lists(present, min_size=1, max_size=3)
    names = st.lists(TEXT, min_size=1, max_size=3, unique=True)
    hashable = st.sampled_from([st.integers(-9, 9), TEXT, st.binary(max_size=2)])
    return st.one_of(
        present.map(lambda values: st.lists(values, max_size=3)),
        parts.map(lambda each: st.tuples(*each)),
        st.tuples(names, parts).map(lambda both: st.fixed_dictionaries(dict(zip(*both, strict=False)))),
        st.tuples(hashable, present).map(lambda both: st.dictionaries(*both, max_size=3)),
    )


COLUMNS = st.recursive(leaves(), nested, max_leaves=5).flatmap(lambda v: st.lists(st.none() | v, max_size=8))


def types_of(value: Any) -> Any:
    """The types of a value and all its parts."""
    if isinstance(value, dict):
        return {key: (type(key), types_of(each)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types_of(each) for each in value]
    return type(value)


@settings(max_examples=60)
@given(COLUMNS)
def test_a_column_comes_back_as_it_was(values: list[Any]) -> None:
    column = to_arrow(values, "value")
    column.validate(full=True)
    back = from_arrow(column)
    assert back == values
    assert list(map(types_of, back)) == list(map(types_of, values))


@settings(max_examples=60)
@given(COLUMNS, st.integers(0, 8))
def test_types_of_two_parts_unify_to_one_that_carries_the_whole(values: list[Any], cut: int) -> None:
    one, other = arrow_type_of(values[:cut], "value"), arrow_type_of(values[cut:], "value")
    back = from_arrow(to_arrow(values, "value", unified_type(one, other, "value")))
    assert back == values
    assert list(map(types_of, back)) == list(map(types_of, values))


@settings(max_examples=60)
@given(COLUMNS, COLUMNS)
def test_what_is_mixed_is_refused_or_kept(some: list[Any], others: list[Any]) -> None:
    try:
        column = to_arrow([*some, *others], "value")
    except NoArrowTypeError:
        with pytest.raises(NoArrowTypeError, match="column 'value"):
            to_arrow([*others, *some], "value")
        return
    back = from_arrow(column)
    assert list(map(types_of, back)) == list(map(types_of, [*some, *others]))
    assert back == [*some, *others]


@pytest.mark.parametrize("values", [[2**64], [-(2**63) - 1], [-1, 2**63]])
def test_whole_numbers_that_no_type_has_are_refused_with_the_number(values: list[int]) -> None:
    with pytest.raises(NoArrowTypeError, match=rf"'value'.*{max(values, key=abs)}"):
        arrow_type_of(values, "value")
    if len(values) > 1:
        unified = unified_type(*(arrow_type_of([value], "value") for value in values), "value")
        with pytest.raises(NoArrowTypeError, match="can't hold its values"):
            to_arrow(values, "value", unified)
