"""Objects of one layout are parsed from their bytes, and only where Arrow's parser reads the same."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.io.formats import json_columns
from penstock.runtime.io.formats.json_columns import JsonColumns
from penstock.runtime.io.formats.json_layout import parse_alike

SCHEMA = pa.schema({"i": pa.int64(), "s": pa.string(), "f": pa.float64(), "b": pa.bool_(), "n": pa.int8()})
OBJECT = '{"i": 1, "x": 7, "s": "tea", "f": 1.5, "b": true, "n": -3}'

#: Tokens that may stand in the place of a value.
TOKENS = [
    *("0", "-0", "7", "-12", "007", "-01", "+1", "-", "--1", "0x5", "1_0", "9007199254740993"),
    *("9223372036854775807", "9223372036854775808", "128", "1.0", "1.", ".5", "-.5", "1.5", "0.1", "00.5"),
    *("1e5", "1E-5", "1.e5", "1e", "0e1", "0.e1", "1e400", "-1e-400", "123456789012345678.5", "1.5.5"),
    *("12345678.12345678", "1234567.7654321", "123456789.5", "0.00000001", "-0.0", "1.123456789", "-00.5"),
    *("99999999", "100000000", "9999999999999999", "10000000000000000", "-9999999999999999", "1234567:"),
    *("inf", "nan", "NaN", "Infinity", "true", "false", "tru", "True", "fals", "falsy", "null", "nul"),
    *(
        '""',
        '"tea"',
        '"ü"',
        '"a, b: {}"',
        '"a\\"b"',
        '"a\tb"',
        '"1"',
        '"\u2028"',
        '"\x7f"',
        "[]",
        "{}",
        " 1",
        "1 ",
    ),
]


def parsed_by_arrow(values: list[bytes], schema: pa.Schema) -> pa.RecordBatch | None:
    assert len(values) < json_columns.FEWEST
    return JsonColumns(schema).of_values(values)


def with_token(token: str, name: str) -> str:
    """The object with another token in the place of a field's value."""
    before, _, rest = OBJECT.partition(f'"{name}": ')
    at = min(place for place in (rest.find(","), rest.find("}")) if place >= 0)
    return f'{before}"{name}": {token}{rest[at:]}'


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An object in which a few bytes are replaced, put in or left out."""
    value = bytearray(OBJECT.encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value) - 1))
        value[at : at + draw(st.integers(0, 2))] = draw(st.sampled_from(list('{}",:\\ \n1-.e'))).encode()
    return bytes(value)


OBJECTS = st.one_of(
    st.just(OBJECT.encode()),
    st.builds(
        lambda token, name: with_token(token, name).encode(),
        st.sampled_from(TOKENS),
        st.sampled_from("ixsfbn"),
    ),
    damaged(),
)


@given(st.lists(OBJECTS, min_size=1, max_size=4))
@example([b'{"i":1}"s":"x"}'])
@example([b'{"s":"a"}\n{"s":"b"}', b'{"s":"c"}'])
@example([b'{"s":"a', b'b"}'])
@example([b'{"s": "a}"}', b'{"s": "{b"}'])
@example([b'{"i": 1, "i": 2}'])
@example([b'{"s":"\xff"}'])
@example([b'{"x":1e400}'])
@example([b'{"x":1' + b"0" * 400 + b"}"])
@example([b'{"s":"","i":1}', b'{"s":"","i":"'])
def test_what_is_read_is_what_arrow_reads(values: list[bytes]) -> None:
    found = parse_alike(values, SCHEMA)
    if found is not None:
        expected = parsed_by_arrow(values, SCHEMA)
        assert expected is not None
        assert found.schema == expected.schema
        # As texts, so that -0.0 is not 0.0.
        assert repr(found.to_pylist()) == repr(expected.to_pylist())


DIGITS = st.integers(0, 10**17).map(str)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "-"]), DIGITS, st.none() | DIGITS.flatmap(lambda d: st.just(d[::-1]))),
        min_size=1,
        max_size=8,
    )
)
def test_plain_numbers_are_those_of_python(numbers: list[tuple[str, str, str | None]]) -> None:
    floats = [sign + whole + ("" if part is None else f".{part}") for sign, whole, part in numbers]
    texts = [
        b'{"i": %s%s, "f": %s}' % (sign.encode(), whole.encode(), number.encode())
        for number, (sign, whole, _) in zip(floats, numbers, strict=True)
    ]
    found = parse_alike(texts, pa.schema({"i": pa.int64(), "f": pa.float64()}))
    if found is not None:
        assert found["i"].to_pylist() == [int(sign + whole) for sign, whole, _ in numbers]
        assert repr(found["f"].to_pylist()) == repr([float(number) for number in floats])
    elif all(len(whole) <= 8 and len(part or "") <= 7 for _, whole, part in numbers):
        pytest.fail("plain numbers must not be left to Arrow")


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "i": st.integers(-(2**63), 2**63 - 1),
                "s": st.text(
                    st.characters(exclude_characters='"\\', min_codepoint=32, exclude_categories=["Cs"])
                ),
                "f": st.floats(-1e15, 1e15),
                "b": st.booleans(),
                "n": st.integers(-128, 127),
            }
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from([(", ", ": "), (",", ":"), (" , ", " :  ")]),
)
def test_objects_that_one_program_has_written_are_read(
    rows: list[dict[str, Any]], separators: tuple[str, str]
) -> None:
    rows = [{name: row[name] for name in SCHEMA.names} for row in rows]
    values = [json.dumps(row, ensure_ascii=False, separators=separators).encode() for row in rows]
    found = parse_alike(values, SCHEMA)
    assert found is not None
    assert found.to_pylist() == rows


def test_fields_that_the_schema_lacks_are_ignored_and_missing_ones_are_null() -> None:
    found = parse_alike([b'{"x": 1.5, "i": 1, "y": "z"}', b'{"x": null, "i": 2, "y": ""}'], SCHEMA)
    assert found is not None
    nulls = {"s": None, "f": None, "b": None, "n": None}
    assert found.to_pylist() == [{"i": 1, **nulls}, {"i": 2, **nulls}]


@pytest.mark.parametrize(
    "other",
    [
        b'{"s": "x", "i": 1}',
        b'{"i": 1}',
        b'{"i": 1, "s": null}',
        b'{"i":1, "s": "x"}',
        b'{"i": 1, "s": "a\\nb"}',
        b'{"i": 1, "s": "x", "t": 1}',
    ],
)
def test_an_object_of_another_layout_is_left_to_arrow(other: bytes) -> None:
    assert parse_alike([b'{"i": 1, "s": "x"}', other], SCHEMA) is None


def test_columns_of_other_types_are_left_to_arrow() -> None:
    assert parse_alike([b'{"t": "2026-01-01"}'], pa.schema({"t": pa.timestamp("us")})) is None
    assert parse_alike([b'{"l": [1]}'], pa.schema({"l": pa.list_(pa.int64())})) is None
    assert (
        parse_alike([b'{"i": 1}'], pa.schema([pa.field("i", pa.int64()), pa.field("s", pa.string(), False)]))
        is None
    )


def test_one_object_of_another_layout_sends_only_its_block_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_columns, "_BLOCK", 300)
    monkeypatch.setattr(json_columns, "FEWEST", 200)
    values = [b'{"i": %d}' % number for number in range(1_000)]
    values[450] = b'{"i": null}'
    by_arrow = []
    parsed = JsonColumns.parsed

    def counted(self: JsonColumns, text: bytes, objects: int, given: Any) -> pa.RecordBatch | None:
        by_arrow.append(objects)
        return parsed(self, text, objects, given)

    monkeypatch.setattr(JsonColumns, "parsed", counted)
    found = JsonColumns(pa.schema({"i": pa.int64()})).of_values(values)
    assert found is not None
    assert found["i"].to_pylist() == [None if number == 450 else number for number in range(1_000)]
    # The block after it is not tried, and the last one is too small.
    assert by_arrow == [300, 300, 100]


def test_large_batches_of_one_layout_do_not_go_to_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonColumns, "parsed", None)
    found = JsonColumns(SCHEMA).of_values([OBJECT.encode()] * json_columns.FEWEST)
    assert found is not None
    assert found.num_rows == json_columns.FEWEST


def test_a_layout_is_tried_seldom_after_it_was_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    monkeypatch.setattr(json_columns, "parse_alike", lambda values, schema: tries.append(len(values)))
    columns = JsonColumns(SCHEMA)
    for _ in range(200):
        assert columns.of_values([b'{"i": 1}'] * json_columns.FEWEST) is not None
    assert len(tries) == 9
