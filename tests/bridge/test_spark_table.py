"""A table's commits and its owner, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.bridge import spark_table
from penstock.bridge.spark_table import SparkTable
from penstock.connectors import Sink
from penstock.runtime.errors import OperatorError, PenstockError
from penstock.testing import OperatorHarness

SCHEMA = pa.schema({"id": pa.int64()})


def driven(sink: Sink[Any], **settings: Any) -> OperatorHarness:
    """A sink in the harness, as a job has it."""
    return OperatorHarness.of(lambda rows: rows.sink("out", sink), **settings)


def committed(folder: Path) -> list[int]:
    """The rows that readers of the folder see."""
    return sorted(i for file in folder.glob("part-*") for i in pq.read_table(file)["id"].to_pylist())


def test_a_table_shows_no_secret() -> None:
    assert repr(SparkTable("s3://me:wJalrXUtnFEMI@bucket/t")).startswith(
        "SparkTable(path='s3://***@bucket/t'"
    )


def test_rows_appear_with_their_checkpoint_and_once(tmp_path: Path) -> None:
    sink = SparkTable(tmp_path, SCHEMA)
    with driven(sink) as harness:
        harness.push([{"id": 1}, {"id": 2}])
        snapshot = harness.snapshot()
        assert committed(tmp_path) == []
    with driven(sink, restored=[snapshot], attempt=2) as harness:
        assert committed(tmp_path) == [1, 2], "the restored checkpoint covers them"
        harness.push([{"id": 3}])
        harness.complete_checkpoint(harness.snapshot())
    with driven(sink, restored=[snapshot], attempt=3):
        assert committed(tmp_path) == [1, 2, 3], "a commit that is repeated does nothing"


def test_types_are_those_that_spark_reads(tmp_path: Path) -> None:
    with driven(SparkTable(tmp_path, pa.schema({"id": pa.uint32()}))) as harness:
        harness.push([{"id": 2**32 - 1}])
        harness.complete_checkpoint(harness.snapshot())
    (file,) = tmp_path.glob("part-*")
    assert pq.read_schema(file).field("id").type == pa.int64()


def test_a_table_of_another_operator_of_this_job_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with driven(SparkTable(tmp_path, SCHEMA)):
        pass
    (owner,) = (tmp_path / "_penstock" / "owners").iterdir()
    owner.write_text(owner.read_text().replace('"operator": "', '"operator": "other-'))
    with (
        pytest.raises(
            OperatorError, match=r"written by operator 'other-.*' of this job; give operator '.*path"
        ),
        driven(SparkTable(tmp_path, SCHEMA)),
    ):
        pass


def test_a_table_of_another_job_is_refused_while_that_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driven(SparkTable(tmp_path, SCHEMA)):
        pass
    (owner,) = (tmp_path / "_penstock" / "owners").iterdir()
    owner.write_text('{"job": "other", "operator": "out"}')
    monkeypatch.setattr(spark_table, "job_lives", lambda job_id: True)
    with (
        pytest.raises(
            (PenstockError, OperatorError),
            match="is written by operator 'out' of job other, which has not ended; end that job first, or",
        ),
        driven(SparkTable(tmp_path, SCHEMA)),
    ):
        pass
    monkeypatch.setattr(spark_table, "job_lives", lambda job_id: False)
    with driven(SparkTable(tmp_path, SCHEMA)):
        assert len(list((tmp_path / "_penstock" / "owners").iterdir())) == 2
