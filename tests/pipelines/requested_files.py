"""Files are handed out one by one, to whichever subtask is done with its last one."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from penstock import DataStream, FileSource, StreamEnvironment
from penstock.connectors import OnRequest

Files = list[list[dict[str, Any]]]


def make_input(random: Random) -> Files:
    return [[{"file": n, "row": row} for row in range(random.randrange(15))] for n in range(6)]


def build(env: StreamEnvironment, files: Files, folder: Path) -> DataStream[dict[str, Any]]:
    for number, rows in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = OnRequest(FileSource.json(str(folder / "*.jsonl")))
    return env.from_source("files", source).filter(lambda row: row["row"] % 3 != 0)


def expected(files: Files) -> list[dict[str, Any]]:
    return [row for rows in files for row in rows if row["row"] % 3]
