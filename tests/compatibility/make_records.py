"""Makes log records and a job's report, beside the snapshots of a version; see `make_fixtures.py`."""

from __future__ import annotations

import json
import sys

from driving import DATA
from saved_records import ENTRIES, REPORT

from penstock.actors.shared.archive import save_to_storage
from penstock.runtime.checkpoint.log.records import encode_record
from penstock.runtime.io.storage import open_location


def main(version: str) -> None:
    records = {name: encode_record(entry.record, entry.passes).hex() for name, entry in ENTRIES.items()}
    with (DATA / version / "records.json").open("x") as file:
        json.dump(records, file, indent=1)
        file.write("\n")
    save_to_storage(open_location(str(DATA / version / "reports"), create=True), REPORT)


if __name__ == "__main__":
    main(*sys.argv[1:])
