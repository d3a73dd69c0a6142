"""Secret settings of a Spark session stay out of command lines."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock import ConfigurationError
from penstock.bridge.session.security import known_to_driver, split_secrets

SECRET = {
    "spark.hadoop.fs.s3a.secret.key": "x",
    "spark.hadoop.fs.s3a.access.key": "x",
    "spark.hadoop.fs.s3a.session.token": "x",
    "spark.hadoop.javax.jdo.option.ConnectionPassword": "x",
    "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "x",
    "spark.hadoop.fs.azure.account.key.mine.dfs.core.windows.net": "x",
    "spark.hadoop.fs.azure.sas.container.mine.blob.core.windows.net": "x",
    "spark.jars": "https://user:word@host/a.jar",
}
SHOWN = {
    "spark.hadoop.fs.s3a.endpoint": "https://host:9000/",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "a.Provider",
    "spark.ray.raydp_spark_executor.actor.resource.token": "1",
    "spark.hadoop.fs.s3a.session.token": "",
    "spark.executor.extraJavaOptions": "-Dhadoop.token.files=/a @/b",
}


def test_settings_with_a_secret_name_or_value_are_told_from_the_others() -> None:
    for name, value in SECRET.items():
        assert split_secrets({name: value}) == ({}, {name: value})
    for name, value in SHOWN.items():
        assert split_secrets({name: value}) == ({name: value}, {})


def test_a_new_jvm_finds_them_in_a_file_beside_the_users_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    (tmp_path / "spark-defaults.conf").write_text("spark.users.own 1", encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name mine pyspark-shell")
    with known_to_driver({"spark.a.password": "x"}, tmp_path):
        path = tmp_path / "driver.properties"
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == f"--properties-file {path} --name mine pyspark-shell"
        assert path.read_text(encoding="utf-8") == "spark.users.own 1\nspark.a.password=x\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--name mine pyspark-shell"
    assert not path.exists()


def test_a_file_of_the_users_own_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file=/a pyspark-shell")
    refused = pytest.raises(ConfigurationError, match=r"write spark\.a\.password into that file")
    with refused, known_to_driver({"spark.a.password": "x"}, tmp_path):
        pytest.fail("a session was begun")
