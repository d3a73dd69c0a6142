"""Jobs whose checkpoint storage is S3 over HTTP, in bad weather: the result stays exact, without a person.

The server is moto's, with `jobs/bad_s3.py` in front of it. The output is on the local disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs import bad_s3
from jobs.driving import after_checkpoints, eventually, finish, kill_master, kill_subtask, submit, wait_until
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, counted, lines, paced_lines

from penstock import AdvancedConfig, Checkpointing, FileSink, FixedDelay, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle, start_local

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

COUNT, RATE = 3_000, 3_000.0


@dataclass
class Server:
    """The bad server.

    Attributes:
        folder: Its rules, and what they have done.
    """

    folder: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{(self.folder / 'port').read_text()}"

    def weather(self, *rules: dict[str, Any]) -> None:
        """These faults from now on, and no others."""
        new = self.folder / "rules.json.new"
        new.write_text(json.dumps(rules))
        new.replace(self.folder / "rules.json")

    def struck(self, fault: str) -> int:
        """Number of faults since the server was started."""
        try:
            return int(json.loads((self.folder / "struck.json").read_text()).get(fault, 0))
        except FileNotFoundError:
            return 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("moto.server", reason="moto's server is in the extra `dev`")
    folder = tmp_path_factory.mktemp("s3")
    process = subprocess.Popen([sys.executable, bad_s3.__file__, str(folder)], stdout=subprocess.DEVNULL)
    try:
        eventually("the server", (folder / "port").exists)
        yield Server(folder)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def cluster(server: Server) -> Iterator[None]:
    """A cluster whose processes reach the server by their environment, as on a cloud."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        for name, value in {
            "AWS_ENDPOINT_URL": server.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        start_local(num_cpus=4)
        try:
            yield
        finally:
            ray.shutdown()


@pytest.fixture
def fair(server: Server, cluster: None) -> Iterator[Server]:
    """Fair weather before and after each test."""
    server.weather()
    yield server
    server.weather()


def counting(folder: Path, storage_timeout: float = 60.0, **checkpointing: Any) -> StreamEnvironment:
    options = {"every": 0.25, "storage": f"s3://{bad_s3.BUCKET}/{folder.name}"} | checkpointing
    env = StreamEnvironment(
        "words",
        checkpointing=Checkpointing(**options),
        restart=FixedDelay(attempts=50, delay=0.2),
        config=JobConfig(buffer_timeout=1.0, advanced=AdvancedConfig(storage_timeout=storage_timeout)),
    )
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=folder / "go")
    counted(env.from_source("lines", source), FileSink.json(folder / "out"))
    return env


def more_checkpoints(job: RayJobHandle, more: int) -> None:
    after_checkpoints(job, job.statistics().completed_checkpoints + more)


def finish_exactly(job: RayJobHandle, folder: Path) -> None:
    (folder / "go").touch()
    finish(job)
    assert_exactly_once(folder / "out", lines(COUNT))
    assert hidden_files(folder / "out") == []


def rule(methods: Sequence[str], part: str, fault: str, **more: Any) -> dict[str, Any]:
    return {"methods": list(methods), "part": part, "fault": fault, **more}


def test_a_job_survives_kills_with_its_checkpoints_on_s3(tmp_path: Path, fair: Server) -> None:
    job = submit(counting(tmp_path))
    after_checkpoints(job, 2)
    kill_subtask(job, "count")
    wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    more_checkpoints(job, 2)
    kill_master(job)
    wait_until(job, "the third attempt", lambda r: r.statistics.attempt == 3)
    more_checkpoints(job, 1)

    finish_exactly(job, tmp_path)


@pytest.mark.parametrize("fault", ["refused", "throttled", "lost", "lost_503"])
@pytest.mark.parametrize("part", ["/log/", "/chk-", "/ids/"])
def test_writes_that_are_refused_or_whose_answers_are_lost(
    tmp_path: Path, fair: Server, fault: str, part: str
) -> None:
    """Twice in a row, which the client tries again by itself."""
    job = submit(counting(tmp_path))
    after_checkpoints(job, 2)
    before = fair.struck(fault)
    fair.weather(rule(["PUT"], part, fault, times=2))
    eventually("the fault", lambda: fair.struck(fault) >= before + 2)
    more_checkpoints(job, 2)

    finish_exactly(job, tmp_path)


@pytest.mark.parametrize("fault", ["hangs", "hangs_after"])
@pytest.mark.parametrize("part", ["/log/", "/chk-", "/ids/"])
def test_a_write_that_gets_no_answer_at_all(tmp_path: Path, fair: Server, fault: str, part: str) -> None:
    """It is stored (`hangs_after`) or is not (`hangs`), and no client can know: the call is given up."""
    job = submit(counting(tmp_path, storage_timeout=3.0))
    after_checkpoints(job, 2)
    before = fair.struck(fault)
    fair.weather(rule(["PUT"], part, fault, times=1, seconds=600))
    eventually("the fault", lambda: fair.struck(fault) > before)
    more_checkpoints(job, 2)

    finish_exactly(job, tmp_path)


def test_a_storage_that_refuses_everything_for_a_while(tmp_path: Path, fair: Server) -> None:
    """Also what a restarted attempt reads: a subtask is killed meanwhile."""
    job = submit(counting(tmp_path, timeout=5.0))
    after_checkpoints(job, 2)
    before = fair.struck("refused")
    fair.weather(rule(["PUT", "POST", "GET", "HEAD", "DELETE"], "", "refused"))
    eventually("refusals", lambda: fair.struck("refused") >= before + 5)
    kill_subtask(job, "count")
    eventually("more refusals", lambda: fair.struck("refused") >= before + 15)
    fair.weather()
    more_checkpoints(job, 2)

    finish_exactly(job, tmp_path)


def test_a_slow_storage_only_makes_checkpoints_slow(tmp_path: Path, fair: Server) -> None:
    job = submit(counting(tmp_path))
    after_checkpoints(job, 1)
    fair.weather(rule(["PUT", "POST", "GET"], tmp_path.name, "slow", seconds=0.7))
    more_checkpoints(job, 2)

    finish_exactly(job, tmp_path)
    assert job.statistics().restarts == 0


def test_a_record_whose_answer_is_lost_while_the_job_master_dies(tmp_path: Path, fair: Server) -> None:
    """The record stands in the log, and no subtask knows."""
    job = submit(counting(tmp_path))
    after_checkpoints(job, 2)
    before = fair.struck("hangs_after")
    fair.weather(rule(["PUT"], "/log/", "hangs_after", times=1, seconds=600))
    eventually("the write", lambda: fair.struck("hangs_after") > before)
    kill_master(job)
    wait_until(job, "the next attempt", lambda r: r.statistics.attempt >= 2)
    more_checkpoints(job, 2)

    finish_exactly(job, tmp_path)
