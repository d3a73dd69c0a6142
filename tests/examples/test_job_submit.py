"""Jobs inside `ray job submit`, on a running cluster that asks for a token."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from generate_text import generate_text
from head_node import Cluster, answers

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.ray

HELPER = '''
"""A module of the user's own, beside the program."""


def shouted(line: str) -> list[str]:
    print("a line of", len(line), "characters")
    return line.upper().split()
'''

PROGRAM = """
import sys

from shouting import shouted

from penstock.runtime import Checkpointing, FileSink, FileSource, StreamEnvironment

text, output, storage = sys.argv[1:]
env = StreamEnvironment("shouting", checkpointing=Checkpointing(every=0.5, storage=storage))
env.from_source("lines", FileSource.text(text)).flat_map(shouted).sink("out", FileSink.json(output))
job = env.submit()
print("submitted", job.job_id)
"""

WAITING = """
import sys

from penstock.actors import RayJobHandle
from penstock.runtime import JobStatus

import ray

ray.init(log_to_driver=False)
print("ended as", RayJobHandle(sys.argv[1], "shouting").wait(timeout=60).status.value)
"""


def rows(output: Path) -> list[object]:
    """All committed rows."""
    return [
        json.loads(line)
        for file in output.glob("part-*")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


def test_who_has_no_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    assert answers(cluster.dashboard, None) in (401, 403)
    run = cluster.submit(tmp_path, "python", "-c", "print(1)", outside=tmp_path, RAY_AUTH_MODE="disabled")
    assert run.returncode != 0
    assert "oken" in run.stdout


def test_the_word_count_survives_a_kill_when_the_checkout_is_submitted(
    cluster: Cluster, tmp_path: Path
) -> None:
    generate_text(tmp_path / "a.txt", megabytes=0.1)
    checkout = tmp_path / "checkout"
    (checkout / "examples").mkdir(parents=True)
    for example in (ROOT / "examples").glob("*.py"):
        (checkout / "examples" / example.name).write_bytes(example.read_bytes())
    places = ("--input", tmp_path / "*.txt", "--output", tmp_path / "out")
    options = ("--checkpoint-interval", 0.5, "--kill-after-checkpoints", 1, "--parallelism", 1)

    run = cluster.submit(checkout, "python", "examples/word_count.py", *places, *options, outside=tmp_path)

    assert run.returncode == 0, run.stdout
    assert "killed count[0]" in run.stdout
    assert "1 restart(s)" in run.stdout
    words = Counter((tmp_path / "a.txt").read_text(encoding="utf-8").split())
    expected = Counter((word, n) for word, total in words.items() for n in range(1, total + 1))
    assert Counter((row["word"], row["count"]) for row in rows(tmp_path / "out")) == expected  # type: ignore[index]


def test_a_job_with_a_helper_module_goes_on_without_its_driver(cluster: Cluster, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "shouting.py").write_text(HELPER)
    (project / "program.py").write_text(PROGRAM)
    (project / "waiting.py").write_text(WAITING)
    (tmp_path / "text").write_text("one two\nthree\n" * 100)

    places = (tmp_path / "text", tmp_path / "out", tmp_path / "checkpoints")
    submitted = cluster.submit(project, "python", "program.py", *places, outside=tmp_path)
    assert submitted.returncode == 0, submitted.stdout
    (job_id,) = (line.split()[-1] for line in submitted.stdout.splitlines() if line.startswith("submitted "))
    waited = cluster.submit(project, "python", "waiting.py", job_id, outside=tmp_path)

    assert waited.returncode == 0, waited.stdout
    assert "ended as finished" in waited.stdout
    assert Counter(rows(tmp_path / "out")) == Counter({"ONE": 100, "TWO": 100, "THREE": 100})
