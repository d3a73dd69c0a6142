"""`penstock doctor` without a cluster: its checks, its lines and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from typer.testing import CliRunner

import penstock
from penstock.actors.command_line.app import app, main
from penstock.actors.command_line.checks import (
    CheckResult,
    CheckStatus,
    check_dependencies,
    check_extra,
    check_python,
    check_rocksdb,
    check_shared_memory,
    requirements_of,
)
from penstock.actors.command_line.doctor import check_storage
from penstock.runtime.io.storage import PROBE, ObjectStorage

OK, MISSING, BROKEN = CheckStatus.OK, CheckStatus.MISSING, CheckStatus.BROKEN
DECLARED = [
    Requirement(text)
    for text in (
        "ray[default]<3,>=2.59",
        "numpy>=1.26",
        'fastavro>=1.12; extra == "avro"',
        'penstock[avro]; extra == "formats"',
        'msgspec>=0.20; extra == "formats"',
    )
]


def test_a_python_that_does_not_fit_is_named_with_what_to_do() -> None:
    assert check_python(SpecifierSet(">=3.11"), "3.12.1").status is OK
    old = check_python(SpecifierSet(">=3.11"), "3.10.4")
    assert (old.status, old.is_required) == (BROKEN, True)
    assert old.text == "3.10.4 does not fit >=3.11: make an environment with another Python"


def test_an_extra_needs_its_packages_and_those_of_the_extras_that_it_names() -> None:
    assert [r.name for r in requirements_of(None, DECLARED)] == ["ray", "numpy"]
    assert [r.name for r in requirements_of("formats", DECLARED)] == ["fastavro", "msgspec"]


def test_dependencies_that_do_not_fit_are_named() -> None:
    ray, rest = check_dependencies(requirements_of(None, DECLARED), {"ray": "2.40.0"}.get)
    assert (ray.name, ray.status, ray.is_required) == ("Ray", BROKEN, True)
    assert ray.text == "needs ray<3,>=2.59, found 2.40.0: pip install penstock"
    assert (rest.status, rest.is_required) == (BROKEN, True)
    assert "needs numpy>=1.26, which is missing" in rest.text
    ray, rest = check_dependencies(requirements_of(None, DECLARED), {"ray": "2.60.0", "numpy": "2.0"}.get)
    assert (str(ray), rest.text) == ("ok       Ray            2.60.0", "1 more packages fit")


@pytest.mark.parametrize(
    ("installed", "status", "text"),
    [
        ({}, MISSING, "optional: pip install 'penstock[formats]'"),
        ({"fastavro": "1.12"}, MISSING, "optional: without msgspec: pip install 'penstock[formats]'"),
        ({"fastavro": "1.12", "msgspec": "0.1"}, BROKEN, "needs msgspec>=0.20, found 0.1: pip install"),
        ({"fastavro": "1.12", "msgspec": "0.21"}, OK, "fastavro 1.12, msgspec 0.21"),
    ],
)
def test_an_optional_feature_is_there_missing_or_broken(
    installed: dict[str, str], status: CheckStatus, text: str
) -> None:
    result = check_extra("formats", requirements_of("formats", DECLARED), installed.get)
    assert (result.status, result.is_required) == (status, False)
    assert text in result.text


def test_little_shared_memory_is_named_with_the_option_of_containers() -> None:
    assert check_shared_memory(64_000_000_000, 10_000_000_000).status is OK
    little = check_shared_memory(10_000_000_000, 64_000_000)
    assert (little.status, little.is_required) == (BROKEN, False)
    assert "docker run --shm-size=3g" in little.text


def test_a_database_is_really_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    package = CheckResult("rocksdb", OK, "rocksdict 1")
    assert check_rocksdb(package).text == "rocksdict 1, a database works"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert check_rocksdb(package).status is BROKEN
    missing = CheckResult("rocksdb", MISSING, "optional")
    assert check_rocksdb(missing) is missing


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["doctor", "--quick", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_storage_that_works_is_left_as_it_was(tmp_path: Path) -> None:
    code, said = run("--storage", tmp_path)
    assert code == 0, said
    assert f"ok       storage        {tmp_path}: writes, reads, lists, deletes and creates once" in said
    assert f"ok       Penstock       {penstock.__version__}\n" in said
    assert "cluster" not in said, "--quick"
    assert said.splitlines()[-1].startswith("jobs can run here")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [PROBE]


def test_a_storage_that_can_not_be_used_ends_with_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("sys.argv", ["penstock", "doctor", "--quick", "--storage", str(tmp_path / "file")])
    with pytest.raises(SystemExit, match="1"):
        main()
    out, err = capsys.readouterr()
    assert "broken   storage" in out
    assert "name a folder" in out
    assert err == "penstock: jobs can't run here: look at storage\n"


def test_as_json_it_has_every_check_and_the_same_code(tmp_path: Path) -> None:
    code, said = run("--json", "--storage", tmp_path / "new")
    told = json.loads(said)
    assert (code, told["can_run"]) == (0, True)
    checks = {check["name"]: check for check in told["checks"]}
    assert {"Python", "Ray", "Arrow", "dependencies", "storage", "rocksdb", "kafka", "spark"} <= set(checks)
    assert {check["status"] for check in checks.values()} <= {"ok", "missing", "broken"}
    assert not {"dev", "docs", "mutants"} & set(checks), "extras for work on Penstock"
    code, said = run("--json", "--storage", "ftp://user:geheim@host/folder")
    told = json.loads(said)
    assert (code, told["can_run"]) == (1, False)
    assert "geheim" not in said


@pytest.mark.parametrize("fault", ["forgets", "overwrites", "keeps"])
def test_a_storage_that_breaks_its_promises_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    def forgetful(storage: ObjectStorage, path: str) -> bytes:
        return b"other"

    put = ObjectStorage.put

    def overwriting(storage: ObjectStorage, path: str, data: bytes, *, create: bool = False) -> None:
        put(storage, path, data, create=create and PROBE in path)

    faults = {"forgets": ("get", forgetful), "overwrites": ("put", overwriting)}
    name, faulty = faults.get(fault, ("delete", lambda storage, paths: None))
    monkeypatch.setattr(ObjectStorage, name, faulty)
    result = check_storage(str(tmp_path))
    said = {"forgets": "does not return", "overwrites": "created", "keeps": "still lists"}[fault]
    assert (result.status, result.is_required) == (BROKEN, True)
    assert said in result.text


def test_the_default_storage_is_tried_and_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".penstock").write_text("a file")
    monkeypatch.setenv("HOME", str(tmp_path))
    result = check_storage(None)
    assert (result.status, result.is_required) == (BROKEN, False)
    assert str(tmp_path) in result.text
