"""The page beside a running job: what a person sees and presses, and what the command line says of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs.commands import run_here
from jobs.driving import after_checkpoints, kill_master, kill_subtask, submit, when_records_flow
from jobs.lasting import Lasting
from serving.browser import PATIENCE, browser, opened

from penstock import (
    AdvancedConfig,
    Checkpointing,
    DiscardSink,
    FixedDelay,
    GeneratorSource,
    JobConfig,
    JobStatus,
    StreamEnvironment,
    WatermarkStrategy,
)
from penstock.cluster import RayJobHandle

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.browser]

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"
FOR_EVER = 1_000_000
#: Numbers per second of the source, more than the slow operator takes.
RATE = 600.0
#: The number that breaks the job once.
BAD = 600


def number(i: int) -> int:
    return i


def remainder(n: int) -> int:
    return n % 7


def enrich(n: int) -> int:
    time.sleep(0.01)  # what the test is about: this operator is slow
    return n


def larger(a: int, b: int) -> int:
    return max(a, b)


class OnSchedule:
    """The time at which a number would come from a source that is not slowed down, so the lag grows."""

    def __init__(self) -> None:
        self.began = time.time()

    def __call__(self, n: int) -> int:
        return int((self.began + n / RATE) * 1_000_000)


class Stumbling:
    """`parse`, which fails once in the life of a job."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __call__(self, n: int) -> int:
        if n == BAD and not self.marker.exists():
            self.marker.touch()
            message = f"{n} is a bad number"
            raise ValueError(message)
        return n


@pytest.fixture(scope="module")
def login(ray_cluster: object) -> Iterator[Any]:
    """Starts `penstock ui` for each page: an address begins one session."""
    command = [
        sys.executable,
        "-m",
        "penstock.actors.command_line",
        "ui",
        "--json",
        "--no-open",
        "--port",
        "0",
    ]
    command += ["--address", ray.get_runtime_context().gcs_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["login"]
        finally:
            server.terminate()
            assert server.wait(PATIENCE / 1000) == 0


@pytest.fixture(scope="module")
def page(login: str) -> Iterator[Any]:
    with browser() as started, opened(started, login) as page:
        yield page


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RayJobHandle]:
    """numbers -> parse, which fails once -> enrich, which is slow -> the largest of each remainder."""
    config = JobConfig(
        checkpointing=Checkpointing(every=0.5, storage=str(tmp_path / "checkpoints")),
        restart=FixedDelay(attempts=5, delay=0.1),
        advanced=AdvancedConfig(buffer_rows=8, credits=2),
    )
    env = StreamEnvironment("readings", parallelism=2, config=config)
    numbers = env.from_source("numbers", Lasting(GeneratorSource(number, count=FOR_EVER, rate=RATE), 1))
    times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(OnSchedule())
    numbers = numbers.assign_timestamps_and_watermarks(times)
    parsed = numbers.rebalance().map(Stumbling(tmp_path / "stumbled"), id="parse")
    enriched = parsed.rebalance().map(enrich, id="enrich")
    enriched.key_by(remainder).reduce("largest", larger).sink("out", DiscardSink())
    running = submit(env)
    when_records_flow(running, "out", 100)
    yield running
    running.cancel()


def event_times(job: RayJobHandle) -> list[int]:
    """Watermarks of subtasks."""
    found = [each.statistics.current_watermark for each in job.report().subtasks if each.statistics]
    return [watermark for watermark in found if watermark is not None]


def printed(*words: str) -> Any:
    done = run_here(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def act(page: Any, name: str, sure: str) -> None:
    """Press an action and then the button that confirms it."""
    page.get_by_role("group", name="Actions").get_by_role("button", name=name, exact=True).click()
    confirm(page, sure)


def confirm(page: Any, name: str) -> None:
    dialog = page.get_by_role("dialog")
    dialog.locator(".buttons").get_by_role(
        "button", name=re.compile(rf"^(Take a )?{name}", re.IGNORECASE)
    ).click()
    dialog.locator(".notice.good").wait_for()


def close(page: Any) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).click()


def test_a_job_is_watched_steered_and_stopped_by_hand(
    page: Any, job: RayJobHandle, request: pytest.FixtureRequest
) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE)

    def picture(name: str) -> None:
        if request.config.getoption("--screenshots"):
            PICTURES.mkdir(exist_ok=True)
            page.screenshot(path=PICTURES / f"{name}.png")

    def view(name: str) -> None:
        page.get_by_role("navigation").get_by_role("link", name=name).click()

    page.locator(f'a[href="#/jobs/{job.job_id}"]').click()
    expect(page.locator("[data-vertex]")).to_have_count(4)
    assert {card.get_attribute("data-vertex") for card in page.locator("[data-vertex]").all()} == {
        vertex["id"] for vertex in printed("status", job.job_id)["graph"]["vertices"]
    }

    # The slow operator is named, with what waits for it.
    expect(page.locator(".bottleneck")).to_contain_text("enrich")
    expect(page.locator(".bottleneck")).to_contain_text("wait")
    # A picture has curves that are long enough to be seen, and no start in them.
    after_checkpoints(job, 20 if request.config.getoption("--screenshots") else 2)
    expect(page.locator(".bottleneck")).to_contain_text("enrich")
    assert event_times(job), "for the curve of its lag"
    picture("job")

    # A click on an edge shows the records that flow there now.
    page.get_by_role("button", name="Records from parse to enrich").click()
    flowing = page.get_by_role("region", name="Records of now").locator("tbody tr")
    expect(flowing.first).to_contain_text(re.compile(r"^parse\[0\].*\d+$"))
    picture("records")
    close(page)

    # The failure has the user's words and line.
    view("Failures")
    expect(page.locator(".failures")).to_contain_text(f"{BAD} is a bad number")
    expect(page.locator(".failures")).to_contain_text("test_page.py")
    picture("failures")

    # A killed process is named with the line that defines its operator.
    kill_subtask(job, "parse")
    killed = page.locator(".failures > li").filter(has_not_text=f"{BAD} is a bad number").first
    expect(killed).to_contain_text("parse[0]")
    defined = killed.locator(".pairs > div").filter(has_text="Operator defined at").first
    expect(defined.locator("code").first).to_have_text(re.compile(r"test_page\.py:\d+$"))

    # The page outlives a JobMaster, also where it draws what the next one does not know at first.
    view("Graph")
    kill_master(job)
    view("Time line")
    expect(page.locator(".timeline")).to_contain_text("Another process became the JobMaster")
    view("Graph")
    expect(page.locator("[data-vertex]")).to_have_count(4)

    view("Checkpoints")
    expect(
        page.get_by_role("region", name="Checkpoints, the newest first").locator("tbody tr").first
    ).to_be_visible()
    picture("checkpoints")

    act(page, "Savepoint", "Take a savepoint")
    saved = page.get_by_role("dialog").locator(".notice.good code").inner_text()
    assert printed("inspect", saved)["kind"] == "savepoint"
    close(page)

    page.get_by_role("group", name="Actions").get_by_role("button", name="Rescale").click()
    page.get_by_role("dialog").get_by_label("enrich").fill("3")
    expect(page.get_by_role("dialog")).to_contain_text("2 → 3 subtasks")
    expect(page.get_by_role("dialog").locator(".command")).to_contain_text(
        f"penstock rescale {job.job_id} enrich=3"
    )
    picture("rescale")
    confirm(page, "Rescale the job")
    close(page)
    vertices = printed("status", job.job_id)["graph"]["vertices"]
    assert {vertex["id"]: vertex["parallelism"] for vertex in vertices}["enrich"] == 3
    view("Subtasks")
    page.get_by_label("Vertex").select_option("enrich")
    expect(page.get_by_role("region", name="Subtasks of enrich").locator("tbody tr")).to_have_count(3)
    curves = page.get_by_role("region", name="Curves of enrich")
    expect(curves.get_by_role("img", name=re.compile("^Records per second: in .*rescale"))).to_be_visible()
    # The results of the actions name folders of this machine.
    for _ in range(2):
        page.get_by_role("button", name="Dismiss").first.click()
    expect(page.get_by_role("button", name="Dismiss")).to_have_count(0)
    picture("subtasks")

    act(page, "Stop", "Stop the job")
    stopped = page.get_by_role("dialog").locator(".notice.good code").inner_text()
    close(page)
    assert job.status() is JobStatus.FINISHED
    assert printed("status", job.job_id)["savepoint"] == stopped
    expect(page.locator("h1 + .status")).to_have_text("finished")
