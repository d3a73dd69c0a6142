"""The command and the folder of a program that is submitted, and the report that finds its job again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.job_submission import JobStatus as ProgramStatus

from penstock.actors.client import submissions
from penstock.actors.client.executor import ray_submission
from penstock.actors.client.master_calls import Deadline
from penstock.actors.client.submissions import Program, Submissions, program_of
from penstock.actors.client.upgrade import back_id
from penstock.runtime.errors import ConfigurationError, DeploymentError, JobTimeoutError
from penstock.runtime.snapshot.paths import check_job_id


def test_a_file_runs_in_its_folder_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    file = tmp_path / "jobs" / "my job.py"
    file.touch()
    assert program_of([str(file), "--input", "a b"], None) == Program(
        "python 'my job.py' --input 'a b'", tmp_path / "jobs"
    )
    assert program_of([str(file)], tmp_path, "/venv/bin/python") == Program(
        "/venv/bin/python 'jobs/my job.py'", tmp_path
    )


def test_a_command_runs_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert program_of(["sh", "run.sh", "$HOME"], None) == Program("sh run.sh '$HOME'", tmp_path)


def test_a_file_that_the_cluster_would_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        program_of([str(tmp_path / "job.py")], None)
    (tmp_path / "job.py").touch()
    (tmp_path / "other").mkdir()
    with pytest.raises(ConfigurationError, match=r"is not in --working-dir .*other"):
        program_of([str(tmp_path / "job.py")], tmp_path / "other")


def test_a_cluster_without_a_dashboard_is_refused() -> None:
    with pytest.raises(DeploymentError, match=r"no dashboard.*--include-dashboard=true"):
        Submissions()


def asking(monkeypatch: pytest.MonkeyPatch, *answers: object) -> Submissions:
    """Programs of a Jobs API that lists them with these answers; an exception is raised."""
    made, left = object.__new__(Submissions), list(answers)

    def answer(*_: object, **__: object) -> object:
        if isinstance(given := left.pop(0), Exception):
            raise given
        return given

    monkeypatch.setattr(submissions, "_BETWEEN_TRIES", 0.0)
    made._address = "http://127.0.0.1:8265"
    made._client = cast("Any", SimpleNamespace(list_jobs=answer, submit_job=answer))
    return made


def test_a_question_to_the_jobs_api_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(monkeypatch, ConnectionError(), RuntimeError("status 500"), [])
    assert asked.with_metadata("of", "words-1") == []


def test_a_jobs_api_that_stays_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(monkeypatch, *[ConnectionError("refused")] * submissions._TRIES)
    message = r"127\.0\.0\.1:8265 refuses the request or does not answer: refused"
    with pytest.raises(DeploymentError, match=message):
        asked.with_metadata("of", "words-1")


def test_a_program_is_submitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submission whose answer is lost may have succeeded."""
    asked = asking(monkeypatch, ConnectionError(), "raysubmit_1")
    with pytest.raises(DeploymentError):
        asked.submit(Program("python job.py", Path("/jobs")), {}, {})


def test_a_program_that_does_not_end_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking(monkeypatch)
    running = SimpleNamespace(status=ProgramStatus.RUNNING)
    asked._client = cast("Any", SimpleNamespace(get_job_info=lambda _: running, stop_job=lambda _: True))
    with pytest.raises(JobTimeoutError, match="it does not end after 0 s; look"):
        asked.stop("raysubmit_1", Deadline(0, "it does not end", "look"))


def test_a_program_knows_its_id_in_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "RAY_JOB_CONFIG_JSON_ENV_VAR"
    monkeypatch.delenv(name, raising=False)
    assert ray_submission() == ""
    monkeypatch.setenv(name, json.dumps({"metadata": {"job_submission_id": "raysubmit_1"}}))
    assert ray_submission() == "raysubmit_1"


def test_the_job_that_goes_back_has_the_name_of_the_old_one_and_an_id_of_its_own() -> None:
    back = back_id("word-count-9f04ab12cd", "/saved/1")
    assert check_job_id(back).startswith("word-count-")
    assert back != back_id("word-count-9f04ab12cd", "/saved/2")
    assert back != back_id("word-count-0000000000", "/saved/1")
