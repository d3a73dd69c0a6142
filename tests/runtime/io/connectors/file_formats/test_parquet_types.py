"""A Parquet sink without a schema gives back the rows that it was given, whatever their cut."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import BadRecordError, FileSink, FileSource
from penstock.runtime.io.connectors.file_formats import parquet_encoder
from penstock.runtime.record.elements import ArrowBatch, RowBatch

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 1, 2, 2**53 + 1]),
    st.floats(allow_nan=False),
    st.sampled_from(["", "1", "a"]),
    st.sampled_from([b"", b"a"]),
    st.sampled_from(
        [date(2020, 1, 1), timedelta(microseconds=5), Decimal("1.5"), Decimal("2.25"), Decimal(7)]
    ),
    st.sampled_from(
        [
            datetime(2020, 1, 1),  # noqa: DTZ001
            datetime(2020, 1, 1, 5, 0, 0, 1, tzinfo=UTC),
            datetime(2020, 7, 1, tzinfo=ZoneInfo("Europe/Paris")),
        ]
    ),
)
VALUES = st.one_of(
    LEAVES,
    st.lists(st.integers(0, 5), max_size=2),
    st.lists(st.sampled_from(["x", None]), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y"]), LEAVES, min_size=1),
    st.lists(
        st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from([1, None]), min_size=1), max_size=2
    ),
)
ROWS = st.lists(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, min_size=1), max_size=12)


def typed(value):
    """A value with the types in it; what a dict lacks is null."""
    if isinstance(value, dict):
        return frozenset(
            (name, typed(part)) for name, part in value.items() if part is not None and typed(part)
        )
    if isinstance(value, list):
        return ("list", *map(typed, value))
    if isinstance(value, datetime):
        return ("datetime", value, str(value.tzinfo))
    return (type(value), value)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=ROWS,
    cuts=st.sets(st.integers(1, 11)),
    checkpoints=st.sets(st.integers(1, 11)),
    group=st.integers(1, 6),
)
def test_rows_come_back_with_their_types_from_any_cut(
    tmp_path_factory, context, permit, read_all, rows, cuts, checkpoints, group
):
    where = tmp_path_factory.mktemp("parquet")
    writer = FileSink.parquet(where).writer(context())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_encoder, "GROUP_ROWS", group)
        pending, start = [], 0
        for end in [*sorted(cuts), len(rows)]:
            writer.write(RowBatch(rows[start:end]))
            start = max(start, end)
            if end in checkpoints:
                pending += writer.prepare_commit()
        writer.commit([*pending, *writer.prepare_commit()], permit)
    back = read_all(FileSource.parquet(where)).rows if rows else []
    assert Counter(map(typed, back)) == Counter(map(typed, rows))


def written(directory, context, *batches):
    writer = FileSink.parquet(directory).writer(context())
    for batch in batches:
        writer.write(batch)
    return [pq.ParquetFile(directory / pending.name) for pending in writer.prepare_commit()]


def test_mixed_rows_make_a_file_for_each_type_and_not_for_each_row(tmp_path, context):
    files = written(tmp_path, context, RowBatch([{"v": value} for value in [1, 2.5] * 100]))
    assert [str(file.schema_arrow.field("v").type) for file in files] == ["int64", "double"]
    assert [file.metadata.num_rows for file in files] == [100, 100]


def test_a_new_column_widens_the_schema_for_good(tmp_path, context):
    writer = FileSink.parquet(tmp_path).writer(context())
    schemas = []
    for row in ({"a": 1}, {"b": "x"}, {"a": 2}):
        writer.write(RowBatch([row]))
        (pending,) = writer.prepare_commit()
        schemas.append(pq.read_schema(tmp_path / pending.name).names)
    assert schemas == [["a"], ["a", "b"], ["a", "b"]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "without columns"),
        ({1: 2}, "1 is the name of a column, but names must be strings"),
        ({"a": {}}, r"column 'a': Parquet can't hold {}"),
        ({"a": [{"x": 1}, {}]}, r"column 'a': Parquet can't hold {}"),
        ({"a": [1, "x"]}, "its elements have no common type"),
        ({"a": [2**53 + 1, 0.5]}, "can't be stored exactly"),
        ({"a": 2**64}, "an integer column has 64 bits"),
    ],
)
def test_a_row_that_no_file_can_have_is_refused_whatever_stands_beside_it(tmp_path, context, row, message):
    for index, beside in enumerate(([], [{"a": {"y": 1}}], [{"a": 1}, {"a": "x"}], [{"a": [{"x": 2}]}])):
        writer = FileSink.parquet(tmp_path / str(index)).writer(context())
        writer.write(RowBatch([*beside, row, {"a": object()}]))
        with pytest.raises(BadRecordError, match=message):
            writer.prepare_commit()
        writer.close()


def test_arrow_batches_of_other_types_get_files_of_their_own(tmp_path, context):
    batches = [
        pa.record_batch({"i": [1]}),
        pa.record_batch({"i": [1.5]}),
        pa.record_batch({"i": pa.nulls(1)}),
    ]
    files = written(tmp_path, context, *map(ArrowBatch, batches), RowBatch([{"i": 2}]))
    assert [file.read().to_pydict() for file in files] == [{"i": [1, None, 2]}, {"i": [1.5]}]


def test_what_the_schema_of_a_batch_says_besides_types_stands_in_the_file(tmp_path, context, permit):
    """Spark asks it who has written old times."""
    schema = pa.schema([("a", pa.int64())], {"writer": "known"})
    writer = FileSink.parquet(tmp_path).writer(context())
    writer.write(ArrowBatch(pa.RecordBatch.from_pydict({"a": [1]}, schema)))
    writer.write(ArrowBatch(pa.RecordBatch.from_pydict({"a": [2], "b": ["x"]})))
    writer.commit(writer.prepare_commit(), permit)
    files = [pq.read_schema(path) for path in tmp_path.rglob("*.parquet")]
    assert [file.metadata[b"writer"] for file in files] == [b"known"] * len(files)
