from __future__ import annotations

import logging
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from ray._private import ray_constants

from penstock.actors.client import cluster
from penstock.runtime.errors import DeploymentError


def test_an_address_is_tried_before_ray_is_asked_to_join_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(
        DeploymentError, match=f"at RAY_ADDRESS={address} \\(.*refused\\): .*or unset RAY_ADDRESS"
    ):
        cluster.connect()
    with pytest.raises(DeploymentError, match=f"no Ray cluster answers at '{address}' \\(.*refused"):
        cluster.join_existing()


def test_several_clusters_on_a_machine_are_not_guessed_among(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster.services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(cluster, "_clusters_here", lambda: ["h:1", "h:2"])
    with pytest.raises(DeploymentError, match=r"2 Ray clusters run on this machine \(h:1, h:2\)"):
        cluster.join_existing()


def test_a_machine_without_a_cluster_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(cluster.services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(cluster, "_clusters_here", list)
    with pytest.raises(
        DeploymentError, match=r"no Ray cluster runs on this machine.*--address.*list --storage URL"
    ):
        cluster.join_existing()


def test_the_address_auto_is_the_cluster_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    monkeypatch.setattr(cluster.services, "find_bootstrap_address", lambda _: None)
    monkeypatch.setattr(cluster, "_clusters_here", list)
    with pytest.raises(DeploymentError, match="no Ray cluster runs on this machine"):
        cluster.connect()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setattr(cluster, "_clusters_here", lambda: [address])
    with pytest.raises(DeploymentError, match=f"no Ray cluster answers at '{address}'"):
        cluster.connect()


@contextmanager
def raylet_of(address: str, user: str | int | None = None) -> Iterator[None]:
    """A process with the command line of a raylet."""
    program = ["raylet", "-c", "read _", "raylet", f"--gcs-address={address}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, executable="/bin/sh", stdin=pipe, user=user, cwd="/") as process:
        try:
            yield
        finally:
            process.kill()


def test_the_clusters_of_this_user_are_found_by_their_processes() -> None:
    with raylet_of("203.0.113.7:6379"):
        assert "203.0.113.7:6379" in cluster._clusters_here()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root runs programs of others")
def test_the_command_line_of_another_users_process_gets_no_token() -> None:
    with raylet_of("203.0.113.8:6379", user=65534):
        assert "203.0.113.8:6379" not in cluster._clusters_here()


@pytest.mark.parametrize("before", [None, "1"])
def test_the_switch_for_loopback_is_put_back(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    if before is None:
        monkeypatch.delenv(switch, raising=False)
    else:
        monkeypatch.setenv(switch, before)
    constant = ray_constants.ENABLE_RAY_CLUSTER
    with suppress(RuntimeError), cluster._as_single_machine():
        assert os.environ[switch] == "0"
        assert not ray_constants.ENABLE_RAY_CLUSTER
        raise RuntimeError
    assert os.environ.get(switch) == before
    assert constant == ray_constants.ENABLE_RAY_CLUSTER


def test_only_the_notice_that_authentication_is_on_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    ray_logger = logging.getLogger(cluster._AUTH_LOGGER)
    caplog.set_level(logging.WARNING)
    ray_logger.addHandler(caplog.handler)
    try:
        with cluster._without_authentication_notice():
            ray_logger.warning("Token authentication is enabled for this Ray cluster.")
            ray_logger.warning("Token authentication is disabled for this Ray cluster.")
        ray_logger.warning("Token authentication is enabled, said again")
    finally:
        ray_logger.removeHandler(caplog.handler)
    said = [record.getMessage() for record in caplog.records]
    assert not any(text.startswith("Token authentication is enabled for") for text in said)
    assert any("disabled" in text for text in said)
    assert any("said again" in text for text in said)
