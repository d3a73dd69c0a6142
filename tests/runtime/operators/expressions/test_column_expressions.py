"""Times that repeat are formatted once, with the same texts as Arrow's `strftime` of every row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.operators import column_expressions
from penstock.runtime.operators.column_expressions import ColumnExpressions

_ROWS = 2_000
_DAY = 86_400
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FORMATS = ["%Y-%m-%d", "%H:%M", "%H:%M:%S", "%d %I %p", "%c", "%e|%j|%U|%a|%B", "%%S", "noon", "%R", "%T"]


def _times(unit: str, zone: str | None, *, spread: int, start: int = 0) -> pa.Array:
    ticks = np.random.default_rng(spread).integers(-spread, spread, _ROWS) * _TICKS[unit]
    return pa.array(start * _TICKS[unit] + ticks + np.arange(_ROWS) % _TICKS[unit], pa.timestamp(unit, zone))


def _formatted(times: pa.Array, form: str) -> tuple[pa.Array, pa.Array]:
    columns = ColumnExpressions({"v": pc.field("v"), "text": pc.strftime(pc.field("at"), form)})
    batch = pa.record_batch({"v": pa.array(range(len(times))), "at": times})
    values, texts = columns.compute(batch)
    assert values.equals(batch["v"])
    return texts, pc.strftime(times, form)


@pytest.mark.parametrize("unit", [*_TICKS])
@pytest.mark.parametrize("form", _FORMATS)
@pytest.mark.parametrize("spread", [3, 300, 3 * _DAY, 4_000 * _DAY])
def test_a_text_is_that_of_each_time(unit: str, form: str, spread: int) -> None:
    texts, expected = _formatted(_times(unit, None, spread=spread), form)
    assert texts.equals(expected)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kathmandu"])
@pytest.mark.parametrize("form", ["%Y-%m-%d %Z", "%Y-%m-%d", "%H:%M"])
@pytest.mark.parametrize(
    "start", [0, 1_711_846_800, -2_422_054_408]
)  # a change of the clocks, local mean time
def test_a_text_is_that_of_the_time_in_its_zone(zone: str, form: str, start: int) -> None:
    texts, expected = _formatted(_times("ms", zone, spread=400, start=start), form)
    assert texts.equals(expected)


def test_a_null_has_no_text() -> None:
    times = pa.array([None, *range(_ROWS)], pa.timestamp("ms"))
    texts, expected = _formatted(times, "%Y-%m-%d")
    assert texts.equals(expected)
    assert texts[0].as_py() is None


def test_the_extreme_times_have_their_texts() -> None:
    ends = [np.iinfo(np.int64).min + 1, np.iinfo(np.int64).max] * _ROWS
    texts, expected = _formatted(pa.array(ends, pa.timestamp("ns")), "%Y-%m-%d")
    assert texts.equals(expected)


@pytest.mark.parametrize(("form", "most"), [("%Y-%m-%d", 2), ("%H:%M", 3), ("%H:%M:%S", _ROWS)])
def test_each_distinct_text_is_made_once(form: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    formatted = []

    def compute(expressions: dict[str, pc.Expression], columns: pa.RecordBatch) -> list[pa.Array]:
        formatted.append(columns.num_rows)
        return original(expressions, columns)

    original = column_expressions.compute
    monkeypatch.setattr(column_expressions, "compute", compute)
    ColumnExpressions({"text": pc.strftime(pc.field("at"), form)}).compute(
        pa.record_batch({"at": _times("ms", None, spread=50)})
    )
    assert sum(formatted) <= most


def test_two_columns_of_a_name_are_refused() -> None:
    times = _times("ms", None, spread=3)
    batch = pa.RecordBatch.from_arrays([times, times], names=["at", "at"])
    with pytest.raises(Exception, match="at"):
        ColumnExpressions({"text": pc.strftime(pc.field("at"), "%d")}).compute(batch)
