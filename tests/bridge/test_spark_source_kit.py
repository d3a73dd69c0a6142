"""The source of rows from Spark passes the tests that every source must pass.

Its receive buffers are real, in this process, and hold a DataFrame. A buffer belongs to its job and keeps a
row until a completed checkpoint covers it. So no other job can continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from buffer_frames import closed, frame
from kit_steps import SOURCE_STEPS
from test_buffer_reader import Held
from unsteady import Unsteady

from penstock.bridge import spark_source
from penstock.bridge.frame_store import FrameStore
from penstock.bridge.push_partition import encoded
from penstock.bridge.receive_buffer import ReceiveBuffer
from penstock.bridge.receive_buffer_messages import BufferSettings
from penstock.bridge.spark_source import SparkSource
from penstock.testing.connectors import SourceTests


class DataFrame:
    """The rows of a DataFrame; a job's receive buffers get them when they start, each a frame for a row."""

    def __init__(self, folder: Path) -> None:
        self._rows: list[Any] = []
        self._buffers: dict[tuple[str, int, int], ReceiveBuffer] = {}
        self._files: list[FrameStore] = []

    def source(self) -> SparkSource:
        return SparkSource(BufferSettings("transfer"), "rows", pa.schema({"record": pa.string()}))

    def write(self, records: Sequence[Any]) -> None:
        self._rows += records

    def buffer(self, job_id: str, index: int, of: int, settings: BufferSettings) -> Unsteady:
        name = job_id, index, of
        if name not in self._buffers:
            self._buffers[name] = self._filled(index, self._rows[index::of])
        return Unsteady(Held(self._buffers[name]), {})

    def cleanup(self) -> None:
        for files in self._files:
            files.close()

    def _filled(self, index: int, rows: list[Any]) -> ReceiveBuffer:
        self._files.append(FrameStore())
        buffer = ReceiveBuffer(index, self._files[-1])
        buffer.begin(0, "run")
        for number, row in enumerate(rows):
            buffer.push(frame(index, number, encoded([pa.RecordBatch.from_pylist([row])]).to_pybytes()))
        assert closed(buffer, 0, "run", {index: (len(rows), len(rows))}) is None
        buffer.finish()
        return buffer


class TestSparkSource(SourceTests):
    simulated = False
    steps = SOURCE_STEPS
    is_resumable = False
    most_polls = 1_000

    @pytest.fixture(autouse=True)
    def _use(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def make_world(self, folder: Path) -> DataFrame:
        made = DataFrame(folder)
        self._patch.setattr(spark_source, "receive_buffer_actor", made.buffer)
        return made
