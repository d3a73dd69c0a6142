from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import BadRecordError
from penstock.runtime.io.connectors.arrow_batches import ARROW_ROWS, MOST_ASKED, arrow_rows, rows_of_arrow
from penstock.runtime.task.work_in_progress import MOST_ROWS


def test_a_job_that_keeps_up_gets_large_arrow_batches():
    assert MOST_ASKED == MOST_ROWS
    assert arrow_rows(MOST_ROWS) == ARROW_ROWS
    assert arrow_rows(MOST_ROWS - 1) < ARROW_ROWS


def test_a_value_that_python_does_not_have_is_a_bad_record():
    far = pa.array([2**62]).cast(pa.timestamp("us"))
    with pytest.raises(BadRecordError, match="column 'at'"):
        rows_of_arrow(pa.record_batch({"at": far}))
