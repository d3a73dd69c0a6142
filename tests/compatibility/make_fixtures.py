"""Makes the snapshots of a version, which later versions must be able to restore.

    .venv/bin/python tests/compatibility/make_fixtures.py v0_2

Run it once, with the code of that version, and commit what it wrote. Never run it again for a version that
has fixtures: they prove something only as long as the code that wrote them is old.
"""

from __future__ import annotations

import sys

from driving import DATA, take
from saved_jobs import JOBS


def main(version: str) -> None:
    folder = DATA / version
    if folder.exists():
        sys.exit(f"{folder} is there already: what a version has written is never written again")
    for name in JOBS:
        take(name, folder / name)
        print(folder / name)


if __name__ == "__main__":
    main(*sys.argv[1:])
