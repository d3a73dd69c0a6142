"""Text files are read, and the result is written into JSON files in two phases.

A part file has a hidden name until the checkpoint that covers it is complete. So readers see each record
once, and no file is left behind under a hidden name.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from penstock import FileSink, FileSource, StreamEnvironment

Files = dict[str, list[str]]
Row = dict[str, Any]


def parsed(line: str) -> Row:
    name, _, number = line.partition("=")
    return {"name": name, "number": int(number)}


def make_input(random: Random) -> Files:
    return {
        f"{n}.txt": [f"n{n}={random.randrange(100)}" for _ in range(random.randrange(25))] for n in range(3)
    }


def build(env: StreamEnvironment, files: Files, folder: Path) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for name, lines in files.items():
        (folder / "in" / name).write_text("".join(f"{line}\n" for line in lines))
    source = FileSource.text(str(folder / "in" / "*.txt"), split_size=100)
    env.from_source("files", source).map(parsed).sink("parts", FileSink.json(folder / "out"))


def read(folder: Path) -> list[Row]:
    hidden = [path.name for path in (folder / "out").glob("[._]*")]
    assert not hidden, f"left behind: {hidden}"
    lines = [line for path in (folder / "out").glob("part-*") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def expected(files: Files) -> list[Row]:
    return [parsed(line) for lines in files.values() for line in lines]
