"""An approximate number of different values is the same whatever the batches are, and near the exact one."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataStream
from penstock.aggregates import ApproxCountDistinct
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.record.elements import ArrowBatch
from penstock.runtime.state.column_table import ColumnTable
from penstock.testing import OperatorHarness

needs_library = pytest.mark.skipif(
    find_spec("datasketches") is None, reason="penstock[sketches] is not there"
)


def counted(values: list[Any], cuts: list[int], *, combined: bool = False) -> tuple[int, bytes]:
    """The number and the sketch of one key after batches that end at these places."""
    aggregation, table = Aggregation(["k"], {"n": ApproxCountDistinct("v", lg_k=8)}), ColumnTable("t", 128)
    slots = None
    for start, end in zip([0, *cuts], [*cuts, len(values)], strict=True):
        some = values[start:end]
        reduced = aggregation.partials({"k": pa.array(["a"] * len(some))}, {"v": pa.array(some, pa.int64())})
        if combined:
            before = ColumnTable("combined", 1)
            reduced = aggregation.partials_of(before, aggregation.merge(before, reduced))
        slots = aggregation.merge(table, reduced)
    assert slots is not None
    (number,) = aggregation.results(table, slots)["n"].to_pylist()
    (sketch,) = table.values(slots).column("n:sketch").to_pylist()
    return number, sketch


@needs_library
@pytest.mark.parametrize("seed", range(4))
def test_state_and_number_depend_on_the_set_of_values_alone(seed: int) -> None:
    draws = Random(seed)
    values = [draws.randrange(3000) for _ in range(4000)]
    cuts = sorted(draws.sample(range(1, 4000), 5))
    number, sketch = counted(values, cuts)
    draws.shuffle(values)
    assert counted(values, [2000], combined=True) == (number, sketch)
    assert abs(number - len(set(values))) < 0.25 * len(set(values)), "256 values are kept: 4 standard errors"


@needs_library
def test_few_different_values_are_counted_exactly() -> None:
    assert counted([*range(200), *range(200)], [150])[0] == 200


def about(stream: DataStream[Any]) -> DataStream[Any]:
    return stream.key_by("k").aggregate("about", combine=False, n=ApproxCountDistinct("v"))


@needs_library
def test_rows_and_columns_count_a_value_once_also_after_a_restore() -> None:
    keys, values = [*"aaaab"], ["x", "y", None, "x", None]
    some = [{"k": key, "v": value} for key, value in zip(keys, values, strict=True)]
    batch = ArrowBatch(pa.record_batch({"k": pa.array(keys), "v": pa.array(values).dictionary_encode()}))
    with OperatorHarness.of(about) as harness:
        assert harness.push(some) == [{"k": "a", "n": 2}, {"k": "b", "n": 0}]
        snapshot = harness.snapshot()
    with OperatorHarness.of(about, restored=[snapshot]) as harness:
        assert harness.push_batch(batch) == [{"k": "a", "n": 2}, {"k": "b", "n": 0}]
        assert harness.push([{"k": "a", "v": "z"}]) == [{"k": "a", "n": 3}]


@needs_library
@pytest.mark.parametrize("lg_k", [4, 27, True, 1.5])
def test_a_wrong_size_is_refused(lg_k: Any) -> None:
    with pytest.raises(ConfigurationError, match="lg_k must be from 5 to 26"):
        ApproxCountDistinct("v", lg_k=lg_k)


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    with pytest.raises(ConfigurationError, match=r'pip install "penstock\[sketches\]"'):
        ApproxCountDistinct("v")
