from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import ConnectorError
from penstock.bridge.ray_data import with_columns_of

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.string()})


def test_a_block_with_the_columns_of_its_dataset_is_taken_as_it_is():
    block = pa.table({"a": [1, 2], "b": ["x", None]}).replace_schema_metadata({"pandas": "{}"})
    fitted = with_columns_of(SCHEMA, block, 3)
    assert fitted.equals(block)
    assert fitted.schema.metadata is None
    assert fitted["a"].chunk(0).buffers()[1].address == block["a"].chunk(0).buffers()[1].address


def test_columns_in_another_order_and_columns_of_nulls_get_the_type_of_the_dataset():
    fitted = with_columns_of(SCHEMA, pa.table({"b": [None, None], "a": [1, 2]}), 3)
    assert fitted.schema == SCHEMA
    assert fitted.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": None}]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a": [1.5], "b": ["x"]},
            "block 3 .*: column 'a' is of type double, and of type int64 in the dataset",
        ),
        ({"a": [1]}, r"block 3 .*: column 'b' is missing, but is in the dataset's columns \['a', 'b'\]"),
        (
            {"a": [1], "b": ["x"], "c": [1]},
            r"block 3 .*: column 'c' is not in the dataset's columns \['a', 'b'\]",
        ),
    ],
)
def test_a_block_with_other_columns_is_refused_by_name(columns, message):
    with pytest.raises(ConnectorError, match=message):
        with_columns_of(SCHEMA, pa.table(columns), 3)
