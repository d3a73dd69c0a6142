"""Every Python block of the documents runs, and prints what the document says.

A block that is marked `<!-- needs Ray -->` runs on a cluster, as a program of its own. A block of text
that is marked `<!-- prints -->` must be what the Python block before it prints.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from program_here import run_here

from penstock import StreamEnvironment

ROOT = Path(__file__).resolve().parents[2]

_BLOCK = re.compile(
    r"(?P<ray><!-- needs Ray -->\n)?^```python\n(?P<code>.*?)^```$"
    r"(?:\n\n<!-- prints -->\n```text\n(?P<prints>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Snippet:
    """A Python block."""

    document: str
    line: int
    code: str
    prints: str | None
    needs_ray: bool

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


def documents() -> list[Path]:
    """All of them except the tutorial, whose programs belong together: `test_tutorial.py` runs them."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(document for document in found if document.name != "tutorial.md")


def snippets_in(document: Path) -> Iterator[Snippet]:
    text = document.read_text(encoding="utf-8")
    for block in _BLOCK.finditer(text):
        yield Snippet(
            document.relative_to(ROOT).as_posix(),
            text.count("\n", 0, block.start("code")) + 1,
            block["code"],
            block["prints"],
            block["ray"] is not None,
        )


SNIPPETS = [snippet for document in documents() for snippet in snippets_in(document)]
FIRST, README, COLUMNS = [each for each in SNIPPETS if each.document == "README.md" and each.needs_ray]


def test_no_block_is_overlooked() -> None:
    text = "".join(document.read_text(encoding="utf-8") for document in documents())
    assert text.count("```python") == len(SNIPPETS) > 5
    assert text.count("<!-- needs Ray -->") == sum(snippet.needs_ray for snippet in SNIPPETS)
    assert text.count("<!-- prints -->") == sum(snippet.prints is not None for snippet in SNIPPETS)


@pytest.mark.parametrize("snippet", [s for s in SNIPPETS if not s.needs_ray], ids=str)
def test_a_block_runs(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = io.StringIO()
    code = compile("\n" * (snippet.line - 1) + snippet.code, str(ROOT / snippet.document), "exec")
    with contextlib.redirect_stdout(said):
        exec(code, {"__name__": "__main__"})
    if snippet.prints is not None:
        assert said.getvalue() == snippet.prints


def run(snippet: Snippet, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a block as a program of its own."""
    (folder / "snippet.py").write_text(snippet.code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "snippet.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    if snippet.prints is not None:
        assert done.stdout == snippet.prints
    return done


def run_on_this_cluster(snippet: Snippet, folder: Path) -> None:
    """Run a block in this process; the one of the README runs as a program of its own."""
    program = folder / "snippet.py"
    program.write_text(snippet.code, encoding="utf-8")
    done = run_here(program, folder=folder)
    assert done.returncode == 0, done.stdout
    if snippet.prints is not None:
        assert done.stdout == snippet.prints


def needs_spark(snippet: Snippet) -> bool:
    return "spark_session(" in snippet.code


ON_RAY = [each for each in SNIPPETS if each.needs_ray and each not in (README, COLUMNS)]


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("snippet", [each for each in ON_RAY if not needs_spark(each)], ids=str)
def test_a_block_runs_on_ray(snippet: Snippet, tmp_path: Path) -> None:
    run_on_this_cluster(snippet, tmp_path)


@pytest.mark.long  # tests/on_spark/test_programs.py runs it every time, in a session that is there
@pytest.mark.spark
@pytest.mark.parametrize("snippet", [each for each in ON_RAY if needs_spark(each)], ids=str)
def test_a_block_runs_with_spark(snippet: Snippet, tmp_path: Path) -> None:
    """On a cluster of its own."""
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as ray_folder:
        environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        done = run(snippet, tmp_path, environment | {"RAY_TMPDIR": ray_folder})
    # Every JVM tells of JAVA_TOOL_OPTIONS, which the environment of the tests may set.
    said = [line for line in done.stderr.splitlines() if "Picked up JAVA_TOOL_OPTIONS" not in line]
    assert not said, "a session that goes well is quiet"


@pytest.mark.ray
def test_the_word_count_of_the_readme_counts(tmp_path: Path, ray_environment: dict[str, str]) -> None:
    words = ["to", "be", "or", "not", "to", "be"] * 20
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("\n".join(words), encoding="utf-8")

    run(README, tmp_path, ray_environment)

    updates = [
        json.loads(line)
        for file in (tmp_path / "counts").glob("part-*")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    expected = {(word, n) for word, total in Counter(words).items() for n in range(1, total + 1)}
    assert Counter((update["word"], update["count"]) for update in updates) == Counter(expected)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_columns_of_the_readme_add_up(tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    sales = pa.table({"shop": ["north", "south", "north", "south"] * 50, "cents": [5, 7, -1, 2] * 50})
    pq.write_table(sales, tmp_path / "sales" / "a.parquet")

    run_on_this_cluster(COLUMNS, tmp_path)

    rows = [row for file in (tmp_path / "totals").glob("part-*") for row in pq.read_table(file).to_pylist()]
    newest = {row["shop"]: row for row in sorted(rows, key=lambda row: row["sales"])}
    assert sorted(newest.values(), key=lambda row: row["shop"]) == [
        {"shop": "north", "cents": 250, "sales": 50},
        {"shop": "south", "cents": 450, "sales": 100},
    ]


def test_the_programs_of_the_readme_are_short_and_the_first_one_shows_its_output() -> None:
    assert len(README.code.strip().splitlines()) <= 15
    assert len(FIRST.code.strip().splitlines()) <= 10
    assert FIRST.prints is not None


def test_the_picture_of_the_readme_draws_the_word_count() -> None:
    """The operators of both chains, their subtasks, and the exchange between them."""
    drawn = re.search(
        r"```text\n( +lines .*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert drawn is not None
    found: dict[str, object] = {}
    exec(README.code.replace("env.run()\n", ""), found)
    env = found["env"]
    assert isinstance(env, StreamEnvironment)
    boxes = env.describe().split("key_group by")
    chains = [" ─ ".join(re.findall(r"(\w+)\(", box)) for box in boxes]
    assert re.findall(r"\[(.*?)\]", drawn[1]) == chains * 2
    assert [int(box.split(" subtasks")[0].split()[-1]) for box in boxes[1:]] == [2]
    assert drawn[1].count("── key_by ──▶") == 1
