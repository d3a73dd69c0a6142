"""The cost of the web interface for the job that it shows, and the page's times for a large job.

    python benchmarks/ui.py --json ui.json

One job runs all the time. A page (a stream of server-sent events) is alternately open and closed, and both
halves of a round are compared. The server is a process of its own on the same machine. Then Chromium, if
installed, opens a job of 100 vertices and 1,000 checkpoints. The reports of this job are made up.

Rates vary with the load of the machine. Processor time per record varies less. It covers the job's own
processes, including the JobMaster, which answers the server. Both ratios have a bootstrap interval.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import ray
from measure import (
    Figures,
    Sample,
    Steady,
    busy_seconds,
    cluster,
    machine,
    median_interval,
    middle,
    options,
    rows_a_second,
    running,
    sample,
    scratch,
    spread,
    table,
    versions,
)
from measured_jobs import keyed_sum

from penstock.cluster import RayJobHandle

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # a client, a browser and made-up jobs

from serving.browser import browser, opened, program
from serving.client import Client
from serving.in_thread import served
from serving.scripted import ScriptedDirectory, ScriptedJob, wide_report, with_busy

_TOKEN = "a token that is long enough"
_VERTICES, _CHECKPOINTS = 100, 1_000


@contextmanager
def server(folder: Path) -> Iterator[Client]:
    """Run `penstock ui` as a user does."""
    file = folder / "token"
    file.touch(mode=0o600)
    file.write_text(_TOKEN)
    command = [sys.executable, "-m", "penstock.actors.command_line", "ui", "--json", "--no-open"]
    command += ["--port", "0", "--token-file", str(file)]
    command += ["--address", ray.get_runtime_context().gcs_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Client(json.loads(process.stdout.readline())["address"], _TOKEN)
        process.terminate()


@contextmanager
def page_open(client: Client, job: RayJobHandle) -> Iterator[None]:
    """Let a client read the job's events inside the block."""
    ended, began = threading.Event(), threading.Event()

    def read() -> None:
        for _ in client.events(f"/v1/jobs/{job.job_id}/events"):
            began.set()
            if ended.is_set():
                return

    reader = threading.Thread(target=read)
    reader.start()
    began.wait()
    try:
        yield
    finally:
        ended.set()
        reader.join()


def watched(job: RayJobHandle, seconds: float) -> Steady:
    """Measure the job for `seconds` seconds; get its report only at the beginning and at the end."""
    first = seen(job)
    time.sleep(seconds)
    return Steady((first, seen(job)), 0)


def seen(job: RayJobHandle) -> Sample:
    """Sample the job now, including the processor time of its JobMaster."""
    master = job.report().master
    found = sample(job, "sum")
    return found if master is None else replace(found, busy=found.busy + busy_seconds(master.pid))


def compared(name: str, above: Sequence[float], below: Sequence[float], figures: Figures) -> list[str]:
    """Keep the ratio of both halves of each round, with its interval.

    Returns:
        Its name, its median, the interval and the extremes, for a table.
    """
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    low, high = median_interval(ratios)
    figures.ratios[name] = middle(ratios)
    figures.details[f"{name}, 95 % of medians"] = [low, high]
    return [name, f"{middle(ratios):.3f}", f"{low:.3f} to {high:.3f}", spread(ratios)]


def page_times(figures: Figures) -> list[list[str]]:
    """Measure the times that the page needs for a large job."""
    job = ScriptedJob(wide_report(_VERTICES, _CHECKPOINTS))
    with served(ScriptedDirectory(job)) as made, browser() as started:
        login = f"{made.address}#token={made.access.new_login()}&job=wide-1f2e"
        began = time.monotonic()
        with opened(started, login) as page:
            page.locator("[data-vertex]").nth(_VERTICES - 1).wait_for()
            figures.seconds["page_of_100_vertices"] = time.monotonic() - began
            # An update is measured by the browser's longest task until the graph shows the new text.
            page.evaluate("""() => {
                window.longest = 0;
                new PerformanceObserver((list) => list.getEntries().forEach((entry) => {
                    window.longest = Math.max(window.longest, entry.duration);
                })).observe({type: "longtask", buffered: false});
            }""")
            for busy in (0.6, 0.7, 0.8):
                job.current = with_busy(job.current, busy)
                page.get_by_text(f"busy {busy * 100:.0f} %").wait_for()
            figures.seconds["longest_task_of_an_update"] = page.evaluate("window.longest") / 1000
    return [
        ["open the page of a job with 100 vertices", f"{figures.seconds['page_of_100_vertices']:.2f} s"],
        [
            "longest task of the browser in an update (0: none above 50 ms)",
            f"{figures.seconds['longest_task_of_an_update'] * 1000:.0f} ms",
        ],
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, seconds=3.0, rounds=30, warm_up=3.0).parse_args(arguments)
    figures = Figures()
    opened_runs, closed_runs = [], []
    with (
        scratch() as folder,
        cluster(),
        running(keyed_sum(folder, 1), "sum") as job,
        server(folder) as client,
    ):
        time.sleep(given.warm_up)
        for number in range(given.rounds):
            for is_open in (True, False) if number % 2 else (False, True):
                if is_open:
                    with page_open(client, job):
                        opened_runs.append(watched(job, given.seconds))
                else:
                    closed_runs.append(watched(job, given.seconds))
    rates = [[run.rate for run in runs] for runs in (opened_runs, closed_runs)]
    efforts = [[run.effort for run in runs] for runs in (opened_runs, closed_runs)]
    figures.rates |= {"page open": middle(rates[0]), "page closed": middle(rates[1])}
    of_rates = [f"{rows_a_second(middle(each))} rows/s" for each in rates]
    of_efforts = [f"{middle(each) * 1e9:,.0f} ns a row" for each in efforts]
    lines = [
        [*compared("rate_with_page_open", *rates, figures), "at least 0.99", *of_rates],
        [*compared("processor_time_with_page_open", *efforts, figures), "at most 1.01", *of_efforts],
    ]
    headings = ["what", "ratio", "95 % of medians", "all rounds", "target", "open", "closed"]
    print(table(headings, lines), end="\n\n")
    if program() is not None:
        print(table(["the page", "time"], page_times(figures)), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
