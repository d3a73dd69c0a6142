"""The demo: count the words of a text on Ray, kill a process in the middle, and check the result.

`make demo` runs it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import ray
from generate_text import generate_text
from rich.console import Console
from word_count import kill_one_subtask, paced, word_count

from penstock import JobHandle

CHECKPOINT_INTERVAL = 1.0
KILL_AFTER = 3
FOLDER = Path("demo-output").resolve()

console = Console(highlight=False)


def independent_count(text: Path) -> Counter[str]:
    """The words of the text, counted without Penstock."""
    counts: Counter[str] = Counter()
    with text.open(encoding="utf-8") as lines:
        for line in lines:
            counts.update(line.split())
    return counts


def committed_updates(output: Path) -> Counter[tuple[str, int]]:
    """Number of copies of each (word, n) in the committed files."""
    updates: Counter[tuple[str, int]] = Counter()
    for file in sorted(output.glob("[!._]*")):
        with file.open(encoding="utf-8") as lines:
            updates.update((update["word"], update["count"]) for update in map(json.loads, lines))
    return updates


def compare(text: Path, output: Path) -> tuple[int, int, int]:
    """Return the numbers of right, missing and surplus updates."""
    counts = independent_count(text)
    expected = {(word, n) for word, total in counts.items() for n in range(1, total + 1)}
    committed = committed_updates(output)
    missing = len(expected - committed.keys())
    surplus = sum(n - 1 if update in expected else n for update, n in committed.items())
    return len(expected) - missing, missing, surplus


def seconds_to_first_record(job: JobHandle, killed_at: float) -> float | None:
    """Seconds from the kill to the first record that the next attempt reads."""
    while not job.status().is_terminal:
        statistics = job.statistics()
        read = statistics.operators.get("lines")
        if statistics.attempt > 1 and read is not None and read.records_out > 0:
            return time.monotonic() - killed_at
        time.sleep(0.02)
    return None


def main() -> int:
    """Run the demo; the exit code is 0 when the result is exact."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--megabytes", type=float, default=6.0, help="size of the text (default: 6)")
    parser.add_argument("--keep", action="store_true", help="keep the page of the job until Ctrl-C")
    options = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    text, output = FOLDER / "text.txt", FOLDER / "counts"
    console.rule("Penstock: words counted exactly once")
    generate_text(text, options.megabytes)
    console.print(f"a text of {text.stat().st_size / 1e6:.1f} MB: {text}")

    source = paced(str(text), KILL_AFTER)
    env = word_count(source, str(output), 2, CHECKPOINT_INTERVAL, str(FOLDER / "checkpoints"))
    console.print("\nThe job graph\n")
    console.print(env.describe())

    console.rule("the job runs")
    began = time.monotonic()
    job = env.submit()
    console.print(f"job {job.job_id}, a checkpoint every {CHECKPOINT_INTERVAL:g} s")
    page = job.ui(open_browser=False)
    console.print(f"look at it in a browser (the address works once): {page.login}", soft_wrap=True)
    killed = kill_one_subtask(job, "count", KILL_AFTER)
    killed_at = time.monotonic()
    console.print(f"after {KILL_AFTER} checkpoints: SIGKILL of {killed}")
    recovery = seconds_to_first_record(job, killed_at)
    if recovery is not None:
        console.print(f"recovered: the first record {recovery:.1f} s after the kill")
    result = job.wait()
    statistics = result.statistics
    console.print(
        f"{result.status.value} after {time.monotonic() - began:.1f} s: {statistics.restarts} restart(s), "
        f"{statistics.completed_checkpoints} checkpoints"
    )

    console.rule("compared with an independent count")
    right, missing, surplus = compare(text, output)
    console.print(f"{right:,} updates right, {missing:,} missing, {surplus:,} too many")
    exact = missing == surplus == 0 and killed is not None and statistics.restarts >= 1
    console.print("exactly once" if exact else "NOT exactly once")
    console.print(f"\nLook at {output}, examples/word_count.py, README.md and docs/architecture.md")
    if options.keep:
        with suppress(KeyboardInterrupt):  # users may press Ctrl-C as soon as the line is printed
            console.print(f"the page stays at {page.address} until Ctrl-C")
            while page.process.poll() is None:
                time.sleep(0.5)
    page.close()
    ray.shutdown()
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
