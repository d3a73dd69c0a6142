"""The tests on Ray: their marker, their order, and where they find their helper modules."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

#: Tests import their helper modules as `jobs...`; the cluster's processes do too.
_HERE = str(Path(__file__).parent)
#: The jobs whose snapshots are kept run here, too.
_KEPT = str(Path(__file__).parents[1] / "compatibility")
#: Files that take more than half a minute.
_LONG = {
    "test_bad_storage.py",
    "test_cancel.py",
    "test_checkpoint_history.py",
    "test_command_line.py",
    "test_commit.py",
    "test_failures.py",
    "test_handles.py",
    "test_job_master.py",
    "test_ray_data.py",
    "test_recovery.py",
    "test_regions.py",
    "test_rescaling.py",
    "test_savepoints.py",
    "test_state_frames.py",
    "test_unaligned.py",
    "test_unaligned_stress.py",
    "test_word_count.py",
}
#: Some of the pipelines run here, too; they are imported as `pipelines...`.
_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.append(_TESTS)
for _folder in (_KEPT, _HERE):
    if _folder not in sys.path:
        sys.path.insert(0, _folder)


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    inside = _HERE + os.sep  # with thousands of items, to compare paths takes seconds
    here = [index for index, item in enumerate(items) if str(item.path).startswith(inside)]
    for index in here:
        items[index].add_marker(pytest.mark.ray)
    # Processes share the files: the end of the run is even when the last files are short.
    ordered = sorted((items[index] for index in here), key=lambda item: item.path.name not in _LONG)
    for index, item in zip(here, ordered, strict=True):
        items[index] = item
