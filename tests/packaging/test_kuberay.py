"""The manifests in `deploy/` are what KubeRay takes, and say the same as `ray-cluster.yaml` where they must.

The schema is a reduced extract of KubeRay's own: see `kuberay/README.md`. A field that the schema lacks is
an error here. Kubernetes would drop it without a word.
"""

from __future__ import annotations

import copy
import json
import re
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ray._private.runtime_env.packaging import create_package  # noqa: PLC2701 (as `ray job submit` does)

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
SCHEMAS = Path(__file__).with_name("kuberay")
CLUSTER, JOB = "ray-cluster.kuberay.yaml", "job.kuberay.yaml"


def manifest(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


def strict(schema: Any) -> Any:
    """The schema without fields that it does not name, and with the form that JSON Schema knows."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        made["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    return made


def check(loaded: dict[str, Any]) -> None:
    extract = json.loads((SCHEMAS / f"{loaded['kind'].lower()}.json").read_text(encoding="utf-8"))
    assert loaded["apiVersion"] == f"{extract['group']}/{extract['version']}"
    schema = strict(extract["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(loaded, schema)


def environment(container: dict[str, Any]) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in container["env"]}


def containers(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    spec = cluster["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


@pytest.mark.parametrize("name", [CLUSTER, JOB])
def test_the_manifest_fits_kuberays_schema(name: str) -> None:
    check(manifest(name))


def test_every_manifest_in_the_folder_is_tested() -> None:
    assert {file.name for file in DEPLOY.glob("*.kuberay.yaml")} == {CLUSTER, JOB}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda spec: spec.update(workerGroupSpec=[]), "workerGroupSpec"),
        (lambda spec: spec["gcsFaultToleranceOptions"].update(redis="here"), "redis"),
        (lambda spec: spec["workerGroupSpecs"][0].update(replicas="three"), "three"),
        (lambda spec: spec["headGroupSpec"]["template"]["spec"]["containers"][0].update(envs=[]), "envs"),
    ],
)
def test_a_mistake_would_be_found(change: Any, what: str) -> None:
    wrong = copy.deepcopy(manifest(CLUSTER))
    change(wrong["spec"])

    with pytest.raises(jsonschema.ValidationError, match=what):
        check(wrong)


def test_all_nodes_ask_for_the_token_and_take_it_from_a_secret() -> None:
    for container in containers(manifest(CLUSTER)):
        assert environment(container)["RAY_AUTH_MODE"] == "token"
        (token,) = (each for each in container["env"] if each["name"] == "RAY_AUTH_TOKEN")
        assert "value" not in token
        assert token["valueFrom"]["secretKeyRef"]["name"] == "penstock-ray"


def test_the_operator_itself_has_the_token_and_can_ask_for_the_state_of_a_job() -> None:
    assert manifest(CLUSTER)["spec"]["authOptions"] == {"mode": "token", "secretName": "penstock-ray"}


def test_the_head_keeps_its_tables_in_redis_and_workers_wait_for_it() -> None:
    cluster = manifest(CLUSTER)

    assert cluster["spec"]["gcsFaultToleranceOptions"]["redisAddress"]
    for container in containers(cluster):
        assert int(environment(container)["RAY_gcs_rpc_server_reconnect_timeout_s"] or 0) >= 300


def test_health_checks_are_those_of_the_guide() -> None:
    said = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    given = environment(containers(manifest(CLUSTER))[0])
    checks = {name: value for name, value in given.items() if name.startswith("RAY_health_check_")}
    assert len(checks) == 4
    for name, value in checks.items():
        assert f"{name}={value}" in said


def test_cluster_and_job_have_one_image_with_the_ray_that_is_tested() -> None:
    cluster, job = manifest(CLUSTER), manifest(JOB)
    images = {container["image"] for container in containers(cluster)}
    images |= {each["image"] for each in job["spec"]["submitterPodTemplate"]["spec"]["containers"]}
    assert len(images) == 1
    assert cluster["spec"]["rayVersion"] == version("ray")
    assert f"rayproject/ray:{version('ray')}-" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": cluster["metadata"]["name"]}


def test_what_the_job_runs_is_in_the_folder_that_the_submitter_uploads() -> None:
    """`ray job submit` runs in the submitter's pod, and takes the working_dir from there."""
    spec = manifest(JOB)["spec"]
    assert spec["submissionMode"] == "K8sJobMode"
    python, program = spec["entrypoint"].split()
    pod = spec["submitterPodTemplate"]["spec"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    (volume,) = pod["volumes"]

    assert (python, Path(program).is_absolute()) == ("python", False)
    assert mount["mountPath"] == yaml.safe_load(spec["runtimeEnvYAML"])["working_dir"]
    assert volume["name"] == mount["name"]
    said = (DEPLOY / JOB).read_text(encoding="utf-8")
    made = re.search(r"kubectl create configmap (\S+) --from-file=(\S+)", said)
    assert made is not None
    assert made.groups() == (volume["configMap"]["name"], program)


def test_ray_packs_a_folder_that_kubernetes_fills_from_a_config_map(tmp_path: Path) -> None:
    """Its files are links into a hidden folder, which is itself a link."""
    mounted, hidden = tmp_path / "job", tmp_path / "job" / "..2026_01_01"
    hidden.mkdir(parents=True)
    (hidden / "job.py").write_text("print('here')", encoding="utf-8")
    (mounted / "..data").symlink_to(hidden.name)
    (mounted / "job.py").symlink_to(Path("..data", "job.py"))

    create_package(str(mounted), tmp_path / "packed.zip", include_gitignore=True)

    with zipfile.ZipFile(tmp_path / "packed.zip") as packed:
        assert packed.read("job.py") == b"print('here')"
