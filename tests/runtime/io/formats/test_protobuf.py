from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from proto_messages import ORDER, add_fields, classes_of, every_kind, message_of, new_file
from record_values import columns_of, reason, rows_of, same

from penstock import BadRecordError, ConfigurationError
from penstock.formats import Format, Protobuf
from penstock.runtime.io.formats.protobuf_rows import MessageRowDecoder
from penstock.runtime.record.elements import ArrowBatch, RowBatch

Order = message_of(ORDER)
Every = every_kind()

STRINGS = st.text(st.characters(codec="utf-8"))
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "user": STRINGS,
        "amount": st.floats(allow_nan=False),
        "paid": st.booleans(),
        "data": st.binary(),
    }
)


@given(st.lists(ROWS, max_size=6))
def test_what_was_written_is_read(rows):
    values = Protobuf(Order).encoder().encode(RowBatch(rows))
    assert values == [Order(**row).SerializeToString() for row in rows]
    assert same(rows_of(Protobuf(Order), values), (rows, []))
    assert columns_of(Protobuf(Order), values) == (rows, [])
    columns = Protobuf(Order).decoder("arrow").decode(values).batch
    assert Protobuf(Order).encoder().encode(columns) == values


FULL = Every(
    **{f"a_{kind}": -3 for kind in ("int64", "int32", "sfixed32", "sfixed64", "sint32", "sint64")},
    **{f"a_{kind}": 1 << 31 for kind in ("uint64", "fixed64", "fixed32", "uint32")},
    a_double=0.1,
    a_float=0.5,
    a_bool=True,
    a_string="é",
    a_bytes=b"\xff",
    other=5,
    optional=0,
    numbers=[1, -2],
    texts=["a", ""],
    color=7,
    inner={"y": 3},
    inners=[{"y": 1, "z": ""}, {}],
    counts={"a": 1},
    at=datetime(2026, 11, 29, 7, 0, 0, 1, tzinfo=UTC),
    took=timedelta(seconds=-1.5),
    wrapped={"value": 0},
)


def test_each_type_is_read_to_rows_and_columns_and_written_from_both():
    values = [FULL.SerializeToString(deterministic=True), b""]
    (full, empty), bad = rows_of(Protobuf(Every), values)
    assert not bad
    assert full["at"] == datetime(2026, 11, 29, 7, 0, 0, 1, tzinfo=UTC)
    assert full["took"] == timedelta(seconds=-1.5)
    assert (full["one"], full["other"], full["optional"], full["wrapped"]) == (None, 5, 0, 0)
    assert (full["inner"], full["inners"]) == ({"y": 3, "z": None}, [{"y": 1, "z": ""}, {"y": 0, "z": None}])
    assert (full["numbers"], full["texts"], full["counts"], full["color"]) == (
        [1, -2],
        ["a", ""],
        {"a": 1},
        7,
    )
    assert (empty["a_int64"], empty["optional"], empty["inner"], empty["numbers"]) == (0, None, None, [])
    columns = Protobuf(Every).decoder("arrow").decode(values).batch
    for batch in (RowBatch([full, empty]), columns):
        written = Protobuf(Every).encoder().encode(batch)
        assert [Every.FromString(value) for value in written] == [FULL, Every()]


@given(st.data())
def test_bad_values_are_found_and_rows_are_equal_to_columns(data):
    value = Order(id=1 << 40, user="user", amount=0.5, paid=True, data=b"x").SerializeToString()
    values = data.draw(
        st.lists(
            st.sampled_from([value, None, value[:-1], b"\xff"])
            | st.binary(max_size=12)
            | st.integers(0, len(value) - 1).map(lambda at: value[:at] + b"\xff" + value[at + 1 :]),
            max_size=9,
        )
    )
    rows, bad = rows_of(Protobuf(Order), values)
    nulls = dict.fromkeys(name for name, _ in ORDER)
    columns, same_bad = columns_of(Protobuf(Order), values)
    assert bad == same_bad
    assert repr(columns) == repr([nulls if row is None else row for row in rows])
    assert not {index for index, one in enumerate(values) if one in (None, value)} & set(bad)
    assert {index for index, one in enumerate(values) if one in (b"\xff", value[:-1])} <= set(bad)
    good = [one for index, one in enumerate(values) if index not in bad]
    for one, row in zip(good, rows, strict=True):
        try:
            message = Order.FromString(one or b"")
        except DecodeError:
            continue  # Python's library is stricter with groups
        if one is not None:
            assert repr(row) == repr({name: getattr(message, name) for name, _ in ORDER})


def test_a_bad_value_comes_with_its_reason():
    assert "the value is not a message shop.Order: " in reason(Protobuf(Order).decoder("rows"), b"\xff")
    assert "invalid UTF-8" in reason(Protobuf(Order).decoder("arrow"), b"\x12\x01\xff")


def test_fields_may_be_added_dropped_renamed_and_widened():
    value = Order(id=5, user="u", amount=0.5).SerializeToString()
    newer = message_of([("number", "int64"), ("user", "bytes"), *ORDER[2:], ("note", "optional string")])
    older = message_of(ORDER[:2])
    assert rows_of(Protobuf(older), [value]) == ([{"id": 5, "user": "u"}], [])
    read = {"number": 5, "user": b"u", "amount": 0.5, "paid": False, "data": b"", "note": None}
    assert rows_of(Protobuf(newer), [value]) == ([read], [])
    narrow = message_of([("id", "int32")]).FromString(
        message_of([("id", "int32")])(id=-7).SerializeToString()
    )
    assert rows_of(Protobuf(message_of([("id", "int64")])), [narrow.SerializeToString()]) == (
        [{"id": -7}],
        [],
    )


@pytest.mark.parametrize(
    "row", [{"id": 1.5}, {"id": "1"}, {"id": 1 << 63}, {"user": 5}, {"data": "x"}, {"more": 1}, 5]
)
def test_a_record_that_does_not_fit_is_named(row):
    with pytest.raises(BadRecordError, match=r"can't be written as a message shop.Order.*the record is "):
        Protobuf(Order).encoder().encode(RowBatch([{"id": 1}, row]))


def test_columns_that_do_not_fit_are_named():
    with pytest.raises(BadRecordError, match=r"the record is \{'more': 1\}"):
        Protobuf(Order).encoder().encode(ArrowBatch(pa.record_batch({"more": [1]})))


def test_some_columns_nulls_and_tombstones_are_written():
    batch = pa.record_batch({"id": pa.array([1, None], pa.int16()), "user": ["a", "b"]})
    values = Protobuf(Order).encoder().encode(ArrowBatch(batch))
    assert [Order.FromString(value) for value in values] == [Order(id=1, user="a"), Order(user="b")]
    assert Protobuf(Order).encoder().encode(RowBatch([None])) == [None]


def test_descriptors_name_a_message():
    file = new_file("shop.proto")
    add_fields(file.message_type.add(name="Order"), ORDER)
    descriptors = descriptor_pb2.FileDescriptorSet()
    for one in (*Every.DESCRIPTOR.file.dependencies, Order.DESCRIPTOR.file):
        one.CopyToProto(descriptors.file.add())
    format_ = Protobuf(descriptors.SerializeToString(), "shop.Order")
    assert rows_of(format_, [Order(id=5).SerializeToString()])[0][0]["id"] == 5
    assert pickle.loads(pickle.dumps(format_)) == format_
    with pytest.raises(ConfigurationError, match=r"name='shop.Ordr' is not a message"):
        Protobuf(descriptors.SerializeToString(), "shop.Ordr")


def test_a_class_is_pickled_by_its_descriptors():
    assert isinstance(Protobuf(Order), Format)
    copy = pickle.loads(pickle.dumps(Protobuf(Every)))
    assert copy == Protobuf(Every)
    assert copy.name == "shop.Every"


def test_what_is_no_message_is_refused():
    with pytest.raises(ConfigurationError, match="neither a class that protoc generates"):
        Protobuf(dict)
    with pytest.raises(ConfigurationError, match="can't be used"):
        Protobuf(b"\xff", "shop.Order")


def test_a_message_that_holds_itself_is_read_to_rows_and_has_no_columns():
    file = new_file("node.proto")
    fields = [("v", "int32"), ("next", ".shop.Node"), ("inner", "repeated .shop.Node")]
    add_fields(file.message_type.add(name="Node"), fields)
    node = classes_of(file)["Node"]
    row = {
        "v": 1,
        "next": {"v": 2, "next": None, "inner": []},
        "inner": [{"v": 0, "next": None, "inner": []}],
    }
    value = node(v=1, next={"v": 2}, inner=[{}]).SerializeToString()
    assert rows_of(Protobuf(node), [value, None, b"\xff", b""]) == (
        [row, None, {"v": 0, "next": None, "inner": []}],
        [2],
    )
    assert "the value is not a message shop.Node" in reason(Protobuf(node).decoder("rows"), b"\xff")
    assert Protobuf(node).encoder().encode(RowBatch([row, None])) == [value, None]
    with pytest.raises(ConfigurationError, match=r"shop.Node is recursive, so it has no columns: decode to"):
        Protobuf(node).decoder("arrow")


@given(st.data())
def test_rows_of_both_libraries_are_equal(data):
    """Messages that hold themselves are decoded by Python's library, all others by ptars."""
    full = FULL.SerializeToString(deterministic=True)
    values = [full, b"", full + full]
    seconds, nanos = data.draw(st.integers(-(2**40), 2**40)), data.draw(st.integers(0, 999_999_999))
    timed = Every(at={"seconds": seconds, "nanos": nanos}, took={"seconds": seconds, "nanos": nanos})
    values.append(timed.SerializeToString())
    slow = MessageRowDecoder("shop.Every", Every).decode(values)
    rows, bad = rows_of(Protobuf(Every), values)
    assert [index for index, _ in slow.bad] == bad
    assert same(list(slow.batch.rows), rows)
