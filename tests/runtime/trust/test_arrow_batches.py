"""Arrow batches in a snapshot that may have been changed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.trust.data import read_batch, write_batch


def strange() -> pa.RecordBatch:
    metadata = {b"ARROW:extension:name": b"test.pickled"}
    schema = pa.schema([pa.field("k", pa.binary(), metadata=metadata)])
    return pa.record_batch([pa.array([b"any code"])], schema=schema)


def test_columns_that_may_run_code_are_refused_unless_they_are_trusted() -> None:
    data = write_batch(strange())
    with pytest.raises(CodecError, match=r"column 'k' has the Arrow extension type 'test\.pickled'"):
        read_batch(data)
    assert read_batch(data, any_type=True).equals(strange())


def test_an_index_outside_of_its_dictionary_is_refused() -> None:
    indices = pa.array([0, 1_000_000], pa.int32())
    outside = pa.DictionaryArray.from_arrays(indices, pa.array(["a"]), safe=False)
    with pytest.raises(CodecError, match="out of bounds"):
        read_batch(write_batch(pa.record_batch([outside], ["k"])), any_type=True)


def test_more_keys_than_the_data_can_hold_are_refused() -> None:
    with pytest.raises(CodecError, match="400000000 values"):
        read_batch(write_batch(pa.record_batch({"k": pa.nulls(400_000_000)})))
