from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.actors.client import new_nodes
from penstock.runtime.errors import DeploymentError


def test_a_new_node_that_takes_long_to_register_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [RuntimeError("no such node"), RuntimeError("deadline exceeded"), {"node": "there"}]

    def look(address: str, node: str) -> dict[str, str]:
        answer = answers.pop(0)
        if isinstance(answer, RuntimeError):
            raise answer
        return answer

    monkeypatch.setattr(new_nodes, "_LOOK_AGAIN", 0.0)
    monkeypatch.setattr(new_nodes.services, "get_node", look)
    with new_nodes.patient_with_new_nodes():
        assert new_nodes.services.get_node("h:1", "n") == {"node": "there"}
        monkeypatch.setattr(new_nodes, "_PATIENCE", 0.0)
        answers.append(RuntimeError("no such node"))
        with pytest.raises(RuntimeError, match="no such node"):
            new_nodes.services.get_node("h:1", "n")
    assert new_nodes.services.get_node is look


NODE = "ab" * 28


def not_registered(address: str, node: str) -> None:
    raise RuntimeError("no such node")


def test_a_new_node_finds_the_ports_of_its_agents_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: dict[str, int] = {}

    def start(
        node_id: str,
        session_dir: str,
        metrics_agent_port: int | None = None,
        metrics_export_port: int = 0,
        dashboard_agent_listen_port: int | None = None,
        runtime_env_agent_port: int | None = None,
    ) -> SimpleNamespace:
        started.update({name: value for name, value in locals().items() if isinstance(value, int)})
        return SimpleNamespace(process=None)

    monkeypatch.setattr(new_nodes.services, "start_raylet", start)
    with socket.socket() as taken, socket.socket() as freed, new_nodes.patient_with_new_nodes():
        for each in (taken, freed):
            each.bind(("127.0.0.1", 0))
        given = taken.getsockname()[1], freed.getsockname()[1]
        freed.close()
        new_nodes.services.start_raylet(
            NODE, str(tmp_path), dashboard_agent_listen_port=given[0], runtime_env_agent_port=given[1]
        )
    assert new_nodes.services.start_raylet is start
    assert started["runtime_env_agent_port"] == given[1], "a given port that is free stays"
    assert started["dashboard_agent_listen_port"] in new_nodes._PORTS, "a taken one does not"
    ports = [started[name] for name in new_nodes._AGENT_PORTS]
    assert len(set(ports)) == 4
    assert [int((tmp_path / f"{name}_{NODE}").read_text()) for name in new_nodes._AGENT_PORTS] == ports


def test_a_new_node_that_has_ended_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(node_id: str, session_dir: str, raylet_stderr_filepath: str, **ports: int) -> SimpleNamespace:
        Path(raylet_stderr_filepath).write_text("Check failed: no port\n*** StackTrace ***\n")
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        process.wait()
        return SimpleNamespace(process=process)

    monkeypatch.setattr(new_nodes.services, "start_raylet", start)
    monkeypatch.setattr(new_nodes.services, "get_node", not_registered)
    errors = tmp_path / "raylet.err"
    with new_nodes.patient_with_new_nodes():
        new_nodes.services.start_raylet(NODE, str(tmp_path), str(errors))
        reason = f"ended with exit status 3: Check failed: no port \\(from {errors}\\)"
        with pytest.raises(DeploymentError, match=reason):
            new_nodes.services.get_node("h:1", "n")
