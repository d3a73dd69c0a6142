"""`ray-cluster.yaml` starts a real cluster with Ray's launcher; a job and the Spark notebook run on it.

The machines are network namespaces, and `ssh` and `rsync` between them are stand-ins: see
`jobs/launched.py`. It needs root. The wheel is not installed here: `tests/packaging/test_distributions.py`
does that.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jobs import on_host
from jobs.driving import eventually
from jobs.hosts import why_not
from jobs.launched import Machines, machines
from jobs.oracle import assert_exactly_once
from jobs.words import lines

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "spark_to_ray_and_back.ipynb"
COUNT = 3_000


@pytest.fixture
def reachable() -> Iterator[Machines]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with machines() as made:
        yield made


def configured(made: Machines) -> Path:
    """`ray-cluster.yaml` with the addresses and the user of these machines, beside what it copies."""
    config = yaml.safe_load((ROOT / "ray-cluster.yaml").read_text(encoding="utf-8"))
    head, *workers = made.nodes
    home = made.launcher.home
    config["provider"] |= {"head_ip": head.address, "worker_ips": [each.address for each in workers]}
    config["auth"]["ssh_user"] = "root"
    file = home / "ray-cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    (home / "dist").mkdir()
    (home / "dist" / "penstock-0.2.0-py3-none-any.whl").write_bytes(b"")
    (home / "constraints.txt").write_text("")
    for folder in (".ray", ".ssh"):
        (home / folder).mkdir()
    (home / ".ray" / "auth_token").write_text(secrets.token_hex(32))
    (home / ".ssh" / "id_ed25519").write_text("")
    return file


def test_the_launcher_starts_a_cluster_from_it_and_a_job_runs_there(reachable: Machines) -> None:
    head, launcher = reachable.head, reachable.launcher
    file = configured(reachable)

    up = launcher.run(f"ray up --yes --no-config-cache {file}")

    assert up.returncode == 0, up.stdout
    token = {"RAY_AUTH_MODE": "token", "RAY_ADDRESS": f"{head.address}:6379"}
    count = "import ray; ray.init(); print('alive', sum(n['Alive'] for n in ray.nodes()))"
    asked = f'~/penstock-env/bin/python -c "{count}"'
    eventually("all nodes", lambda: "alive 3" in head.run(asked, **token).stdout, 180.0)
    its = (launcher.home / ".ray" / "auth_token").read_text()
    for machine in reachable.nodes:
        assert "penstock-0.2.0-py3-none-any.whl[spark]" in (machine.home / "pip-was-called").read_text()
        assert (machine.home / ".ray" / "auth_token").read_text() == its
    folder = reachable.folder / "job"
    folder.mkdir()
    settings = {"count": COUNT, "rate": 1_000.0, "num_cpus": 1, "parallelism": 2, "every": 0.5}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "go").touch()
    helpers = str(Path(on_host.__file__).parents[1])
    found = {"runtime_env": {"env_vars": {"PYTHONPATH": helpers}}}
    ran = head.run(
        f"~/penstock-env/bin/python {on_host.__file__} {folder}",
        PYTHONPATH=helpers,
        RAY_JOB_CONFIG_JSON_ENV_VAR=json.dumps(found),
        **token,
    )

    assert ran.returncode == 0, ran.stdout
    written = json.loads((folder / on_host.REPORT).read_text())
    assert written["report"]["status"] == "finished"
    assert set(written["alive"]) == {machine.address for machine in reachable.nodes}
    assert_exactly_once(folder / "out", lines(COUNT))
    # The notebook keeps its checkpoints in a temporary folder, which all nodes have to see.
    ran = head.run(
        f"~/penstock-env/bin/jupyter execute --output={folder}/done.ipynb {NOTEBOOK}",
        TMPDIR=str(folder),
        **token,
    )
    assert ran.returncode == 0, ran.stdout
    done = (folder / "done.ipynb").read_text()
    assert "readings, each of them once" in done
    assert '"output_type": "error"' not in done
    down = launcher.run(f"ray down --yes {file}")
    assert down.returncode == 0, down.stdout
