"""A head starts as a manifest in `deploy/` says, and runs a job that is submitted as the other one says.

KubeRay turns `rayStartParams` into the options of `ray start`. Here the same command runs on loopback.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml
from head_node import answers, head_node

ROOT = Path(__file__).resolve().parents[2]


def spec_of(manifest: str) -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "deploy" / manifest).read_text(encoding="utf-8"))
    spec: dict[str, Any] = loaded["spec"]
    return spec


@pytest.mark.long
@pytest.mark.ray
def test_a_submitted_job_runs_on_a_head_that_starts_as_in_the_manifest(tmp_path: Path) -> None:
    head = spec_of("ray-cluster.kuberay.yaml")["headGroupSpec"]
    (container,) = head["template"]["spec"]["containers"]
    # On a busy machine a node may not answer for as long as these checks allow.
    plain = {
        each["name"]: each["value"]
        for each in container["env"]
        if "value" in each and not each["name"].startswith("RAY_health_check_")
    }
    assert plain.pop("RAY_AUTH_MODE") == "token"
    token = secrets.token_hex(32)
    entrypoint = spec_of("job.kuberay.yaml")["entrypoint"].split()
    program, shown = first_program()
    folder = tmp_path / "job"
    folder.mkdir()
    cpus = "print(int(ray.cluster_resources().get('CPU', 0)))"
    (folder / "job.py").write_text(f"import ray\n{program}{cpus}\n")

    with head_node(head["rayStartParams"], RAY_AUTH_TOKEN=token, **plain) as cluster:
        refused = answers(cluster.dashboard, "another-token")
        run = cluster.submit(folder, *entrypoint, outside=tmp_path)

    assert run.returncode == 0, run.stdout
    assert f"{shown}{head['rayStartParams']['num-cpus']}\n" in run.stdout
    assert refused in (401, 403)


def first_program() -> tuple[str, str]:
    """The first program of the README, and its output."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```\n.*?^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1], found[2]
