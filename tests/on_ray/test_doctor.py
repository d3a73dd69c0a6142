"""The job of `penstock doctor`, on a cluster that runs already, and on one that can't start."""

from __future__ import annotations

import pytest
import ray

from penstock.actors.command_line import doctor
from penstock.actors.command_line.checks import CheckStatus
from penstock.actors.command_line.doctor import check_cluster
from penstock.runtime.errors import DeploymentError


@pytest.mark.usefixtures("ray_cluster")
def test_a_small_job_proves_that_jobs_run_and_the_cluster_stays() -> None:
    result = check_cluster()
    assert (result.status, result.is_required) == (CheckStatus.OK, True), result.text
    assert result.text.startswith("the cluster of this process ran a job in ")
    assert ray.is_initialized()


@pytest.mark.long
def test_a_cluster_that_can_not_start_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        msg = "no port is free"
        raise DeploymentError(msg)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr(doctor, "start_local", refuse)
    result = check_cluster()
    assert (result.status, result.is_required) == (CheckStatus.BROKEN, True)
    assert "no port is free" in result.text
