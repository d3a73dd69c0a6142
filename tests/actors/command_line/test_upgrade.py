"""`penstock upgrade` leaves the job running, or brings the old program back, whatever Ray refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
from typer.testing import CliRunner

from penstock import JobStatus
from penstock.actors.client.job_handle import RayJobHandle
from penstock.actors.command_line import upgrade
from penstock.actors.command_line.app import app
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import DeploymentError, PenstockError
from penstock.runtime.graph.executor import JobStatistics


class Ray:
    """Ray's Jobs API and the steps of an upgrade; the step `refuses` raises `error`."""

    def __init__(self, refuses: str, error: type[BaseException] = DeploymentError) -> None:
        self._refuses, self._error = refuses, error
        self.steps: list[str] = []
        self.is_going_back = False

    def _take(self, step: str) -> str:
        self.steps.append(step)
        if step == self._refuses:
            raise self._error(step)
        return step

    def ship(self, program: object) -> None:
        self._take("ship")

    def stop(self, folder: object, timeout: object) -> str:
        return self._take("stop")

    def start(self, *_: object, **__: object) -> str:
        return self._take("start")

    def first_checkpoint(self, *_: object) -> NoReturn:
        raise DeploymentError

    def go_back(self, savepoint: str) -> JobReport:
        self._take("go_back")
        return JobReport("a-2", "a", JobStatus.RUNNING, 1.0, 1.0, JobStatistics(JobStatus.RUNNING))


def upgraded(ray: Ray, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Replace job `a-1` with the program `new.py`."""
    (folder / "new.py").touch()
    monkeypatch.setattr(upgrade, "named_job", lambda job, address: RayJobHandle(job, "a"))
    monkeypatch.setattr(upgrade, "python_here", lambda: "python")
    monkeypatch.setattr(upgrade, "Submissions", lambda: ray)
    monkeypatch.setattr(upgrade, "Upgrade", lambda *_: ray)
    return CliRunner().invoke(app, ["upgrade", "a-1", str(folder / "new.py")])


def steps_of(refuses: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    ray = Ray(refuses)
    ended = upgraded(ray, folder, monkeypatch)
    assert isinstance(ended.exception, PenstockError | SystemExit), ended
    assert ended.exit_code == 1
    return ray.steps


def test_a_program_that_can_not_be_uploaded_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_of("ship", tmp_path, monkeypatch) == ["ship"]


@pytest.mark.parametrize("refuses", ["start", "first_checkpoint"])
def test_an_upgrade_goes_back_if_ray_refuses_the_program(
    refuses: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert steps_of(refuses, tmp_path, monkeypatch) == ["ship", "stop", "start", "go_back"]


def test_ctrl_c_says_how_to_continue_the_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = upgraded(Ray("start", KeyboardInterrupt), tmp_path, monkeypatch)
    repeat = f"penstock upgrade --timeout 600 a-1 {tmp_path / 'new.py'}"
    assert (ended.exit_code, ended.stderr) == (
        130,
        f"penstock: the upgrade is not complete; to continue: {repeat}\n",
    )
