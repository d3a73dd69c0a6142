from __future__ import annotations

import math
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSource
from penstock.runtime.io.connectors.file_formats.parquet_reader import may_match
from penstock.runtime.operators.needed_columns import columns_to_read
from penstock.runtime.operators.source import NeededColumns

NAN = float("nan")
V, W, N = pc.field("v"), pc.field("w"), pc.field("i")
SCHEMA = pa.schema({"v": pa.float64(), "w": pa.float32(), "i": pa.int64(), "s": pa.string()})


def file_of(folder: Path, *groups: list[dict[str, Any]]) -> Path:
    path = folder / "a.parquet"
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for rows in groups:
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return path


def matching(path: Path, wanted: pc.Expression) -> list[int]:
    with path.open("rb") as handle:
        groups = range(pq.ParquetFile(path).num_row_groups)
        return [group for group in groups if may_match(handle, group, SCHEMA, wanted)]


def test_row_groups_whose_statistics_exclude_a_filter_are_left_out(tmp_path: Path) -> None:
    path = file_of(tmp_path, *([{"i": n, "v": n / 2, "s": f"{n}"}] for n in range(4)))
    assert matching(path, N > 1) == [2, 3]
    assert matching(path, (N > 0) & (V < 1.5)) == [1, 2]
    assert matching(path, pc.field("s") == "2") == [2]
    assert matching(path, W.is_null()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "wanted", [V != 3.0, ~(V <= 3.0), ~(V == 3.0), pc.is_nan(V), ~V.isin([3.0]), (V > 3.0) | (N > 5)]
)
def test_a_row_group_with_nan_stays_where_nan_is_wanted(
    tmp_path: Path, read_all: Callable[..., Any], wanted: pc.Expression
) -> None:
    path = file_of(tmp_path, [{"v": 3.0, "i": 1}, {"v": NAN, "i": 6}], [{"v": 3.0, "i": 1}])
    rows = pq.read_table(path).filter(wanted).num_rows
    assert rows == 1
    assert 0 in matching(path, wanted)
    assert len(read_all(FileSource.parquet(path).with_filter(wanted)).rows) == rows


@pytest.mark.parametrize("wanted", [V.isin([0.0]), V.isin([-0.0]), ~V.isin([-0.0]), W.isin([0, 1])])
def test_a_row_group_of_zeros_stays_where_a_zero_of_either_sign_is_wanted(
    tmp_path: Path, read_all: Callable[..., Any], wanted: pc.Expression
) -> None:
    path = file_of(tmp_path, [{"v": 0.0, "w": 0.0}], [{"v": -0.0, "w": 0.0}], [{"v": 5.0, "w": 5.0}])
    rows = pq.read_table(path).filter(wanted).to_pylist()
    assert rows
    assert read_all(FileSource.parquet(path).with_filter(wanted)).rows == rows
    assert matching(path, V.isin([5.0])) == [2]


def test_statistics_that_do_not_fit_an_expression_leave_nothing_out(
    tmp_path: Path, read_all: Callable[..., Any]
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"u": pa.array([5, 2**63], pa.uint64())}), path)
    found = read_all(FileSource.parquet(path).with_filter(pc.field("u").isin([5])))
    assert found.rows == [{"u": 5}]


_VALUES = st.sampled_from([None, NAN, math.inf, -math.inf, -0.0, 0.0, 1.0, 2.0])
_ROWS = st.fixed_dictionaries(
    {"v": _VALUES, "w": _VALUES, "i": st.none() | st.integers(0, 2), "s": st.none() | st.sampled_from("ab")}
)
_COMPARISONS = st.builds(
    lambda field, compare, value: compare(field, value),
    st.sampled_from([V, W, N]),
    st.sampled_from([operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]),
    st.sampled_from([0, 1, 2]),
)
_PLAIN = (
    _COMPARISONS
    | st.builds(lambda field: field.is_null(), st.sampled_from([V, W, N, pc.field("s")]))
    | st.builds(lambda field: pc.is_nan(field), st.sampled_from([V, W]))
    | st.builds(lambda compare: compare(V, W), st.sampled_from([operator.lt, operator.ne]))
)
_FILTERS = st.recursive(
    _PLAIN,
    lambda inner: (
        st.builds(operator.and_, inner, inner)
        | st.builds(operator.or_, inner, inner)
        | st.builds(operator.invert, inner)
    ),
    max_leaves=4,
)


@given(groups=st.lists(st.lists(_ROWS, min_size=1, max_size=3), min_size=1, max_size=3), wanted=_FILTERS)
def test_no_wanted_row_is_in_a_row_group_that_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, groups: list[list[dict[str, Any]]], wanted: pc.Expression
) -> None:
    path = file_of(tmp_path_factory.mktemp("groups"), *groups)
    read = matching(path, wanted)
    for number, rows in enumerate(groups):
        kept = pa.Table.from_pylist(rows, SCHEMA).filter(wanted)
        assert number in read or not kept.num_rows


def test_columns_that_nobody_looks_at_are_left_out() -> None:
    assert columns_to_read(SCHEMA, None, NeededColumns(("i",), (V > 1, W + N > 2))) == ("v", "w", "i")
    assert columns_to_read(SCHEMA, ("s", "i"), NeededColumns(("i",))) == ("i",)
    assert columns_to_read(SCHEMA, None, NeededColumns(None, (V > 1,))) is None


def test_all_columns_are_read_where_one_is_not_there_or_an_expression_does_not_fit() -> None:
    assert columns_to_read(SCHEMA, None, NeededColumns(("i", "gone"))) is None
    assert columns_to_read(SCHEMA, None, NeededColumns(("i",), (pc.field("gone") > 1,))) is None
    assert columns_to_read(SCHEMA, None, NeededColumns(("i",), (pc.field("s") > 1,))) is None
