"""State that no table can hold as it is, state of other jobs, and arguments that can not be meant."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from state_tables import Strange, entries_of, keyed, of_another_job, restored, with_chunks

from penstock import ConfigurationError, RestoreError
from penstock.runtime.errors import CorruptSnapshotError, KeyTypeError
from penstock.runtime.record.arrow_types import NoArrowTypeError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.captured_rows import CapturedRows
from penstock.runtime.state.immutable_values import DELETED
from penstock.state import read_state, write_state


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({1: 1, 2: 2.5}, r"it holds both 1 \(int\) and 2.5 \(float\)"),
        ({1: {1, 2}}, r"it holds \{1, 2\} \(set\)"),
        ({1: 1 << 70}, r"it holds 1180591620717411303424 \(int\) of more than 64 bits"),
        ({1: {"a": 1, "b": [None, "x", 3]}}, r"column 'value.b\[\]'.*both 'x' \(str\) and 3 \(int\)"),
        ({1: (1,), 2: (1, 2)}, "tuples of different lengths"),
        ({1: Decimal("1e30"), 2: Decimal("1e-30")}, "need 61 digits in all, but a type has at most 38"),
    ],
)
def test_values_that_no_arrow_type_carries_are_named_and_can_be_taken_encoded(
    tmp_path: Path, values: dict[int, Any], told: str
) -> None:
    url = of_another_job(tmp_path, values)
    with pytest.raises(NoArrowTypeError, match=told):
        read_state(url, "sum")
    taken = read_state(url, "sum", encoded=True)
    assert taken["value"].type == pa.binary()
    again = write_state(taken, tmp_path / "again", "sum", encoded=True, max_parallelism=8)
    assert restored(again, "sum", "reduce", 1, 8) == values
    as_text = read_state(url, "sum", value=repr)
    assert entries_of(as_text) == {key: repr(value) for key, value in values.items()}


def test_nothing_is_unpickled_without_consent(tmp_path: Path) -> None:
    url = of_another_job(tmp_path, {1: Strange()})
    with pytest.raises(CorruptSnapshotError, match="pickle"):
        read_state(url, "sum")
    named = read_state(url, "sum", allow_pickle=True, classes=[Strange], value=lambda v: type(v).__name__)
    assert entries_of(named) == {1: "Strange"}


def test_other_states_are_kept_without_being_understood(tmp_path: Path) -> None:
    """Neither a pickle nor a class of another job is in the way of reading or replacing what is beside it."""
    codec = ValueCodec()
    strange = CapturedRows.encoded("strange", [1], [Strange()], codec)
    blocks = [strange, CapturedRows.encoded("n", [1], [5], codec)]
    url = with_chunks(tmp_path, blocks, codec=codec)
    assert entries_of(read_state(url, "sum", "n")) == {1: 5}
    new = write_state(keyed({2: 6}), tmp_path / "new", "sum", "n", base=url)
    assert entries_of(read_state(new, "sum", "n")) == {2: 6}
    kept = read_state(new, "sum", "strange", allow_pickle=True, classes=[Strange], value=repr)
    assert kept["key"].to_pylist() == [1]


def test_a_chain_of_changes_is_read_as_what_is_left_of_it(tmp_path: Path) -> None:
    codec = ValueCodec()
    url = with_chunks(
        tmp_path,
        [CapturedRows.encoded("reduce", ["a", "b", "c"], [1, 2, 3], codec)],
        [CapturedRows("reduce", {"b": DELETED}), CapturedRows.encoded("reduce", ["c", "d"], [30, 4], codec)],
        codec=codec,
    )
    assert entries_of(read_state(url, "sum")) == {"a": 1, "c": 30, "d": 4}
    new = write_state(keyed({"a": 9}), tmp_path / "new", "sum", base=url)
    assert restored(new, "sum", "reduce", 2, 8) == {"a": 9}


def test_arguments_that_can_not_be_meant_are_told(tmp_path: Path) -> None:
    url = write_state(keyed({"a": 1}), tmp_path / "s", "count", parallelism=2, max_parallelism=8)
    with pytest.raises(ConfigurationError, match="it has state of: 'count'"):
        read_state(url, "sum")
    with pytest.raises(ConfigurationError, match="no state 'hot' in this snapshot; it has: 'reduce'"):
        read_state(url, "count", "hot")
    with pytest.raises(ConfigurationError, match="already holds a snapshot"):
        write_state(keyed({"b": 1}), url, "count")
    with pytest.raises(ConfigurationError, match="max_parallelism=16 is not possible"):
        write_state(keyed({"b": 1}), tmp_path / "t", "count", base=url, max_parallelism=16)
    with pytest.raises(ConfigurationError, match="lacks 'value'; it has"):
        write_state(pa.table({"key": [1], "total": [1]}), tmp_path / "t", "count")
    with pytest.raises(ConfigurationError, match="key 'a' is in several rows"):
        write_state(pa.table({"key": ["a", "b", "a"], "value": [1, 2, 3]}), tmp_path / "t", "count")
    with pytest.raises(KeyTypeError):
        write_state(pa.table({"key": [[1]], "value": [1]}), tmp_path / "t", "count")
    with pytest.raises(ConfigurationError, match="kind='lists' is not allowed"):
        write_state(keyed({}), tmp_path / "t", "count", kind="lists")  # type: ignore[arg-type]
    with pytest.raises(RestoreError, match="nowhere is not a folder"):
        read_state(tmp_path / "nowhere", "count")
    assert [*tmp_path.glob("t/*")] == []  # what was refused has left nothing
