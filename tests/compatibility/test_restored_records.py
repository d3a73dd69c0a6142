"""Records of the log and the report of an ended job are read as the version meant them that wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from driving import DATA
from saved_records import ENTRIES, REPORT

from penstock.actors.shared.archive import load_from_storage
from penstock.runtime.checkpoint.log.records import decode_entry
from penstock.runtime.io.storage import open_location

KEPT: dict[str, Any] = {
    path.parent.name: json.loads(path.read_text()) for path in sorted(DATA.glob("*/records.json"))
}


def test_there_are_records_of_every_version() -> None:
    assert list(KEPT) == sorted(path.name for path in DATA.iterdir())
    assert KEPT


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("version", KEPT)
def test_a_record_of_the_log_is_read(version: str, name: str) -> None:
    assert decode_entry(bytes.fromhex(KEPT[version][name]), name) == ENTRIES[name]


@pytest.mark.parametrize("version", KEPT)
def test_the_report_of_an_ended_job_is_read(version: str) -> None:
    assert load_from_storage(open_location(str(DATA / version / "reports")), REPORT.job_id) == REPORT
