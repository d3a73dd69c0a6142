"""The settings of a session, merged with the user's."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from penstock import ConfigurationError
from penstock.bridge.session.security import JVM_SETTINGS
from penstock.bridge.session.spark_options import JVM_OPTIONS, spark_options


def test_every_jvm_gets_the_options_and_the_users_come_last() -> None:
    options = spark_options({"spark.executor.extraJavaOptions": "-Xss4m -Dx=1"})
    for setting in JVM_SETTINGS:
        words = options[setting].split()
        assert words[: len(JVM_OPTIONS)] == list(JVM_OPTIONS)
    assert options["spark.executor.extraJavaOptions"].endswith(" -Xss4m -Dx=1")


def test_an_option_that_the_user_gives_too_is_there_once() -> None:
    options = spark_options({"spark.driver.extraJavaOptions": JVM_OPTIONS[0]})
    assert options["spark.driver.extraJavaOptions"].split().count(JVM_OPTIONS[0]) == 1


def test_what_the_user_sets_wins_and_nothing_else_listens() -> None:
    assert spark_options()["spark.ui.enabled"] == "false"
    assert spark_options({"spark.ui.enabled": True, "spark.x": 1})["spark.ui.enabled"] == "true"


def test_python_workers_are_forked_by_the_daemon_that_the_user_names_or_by_ours() -> None:
    ours, users = spark_options(), spark_options({"spark.python.daemon.module": "pyspark.daemon"})
    assert find_spec(ours["spark.python.daemon.module"]) is not None
    assert users["spark.python.daemon.module"] == "pyspark.daemon"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"executor.memory": "1g"}, "is not a Spark setting"),
        ({"spark.x": None}, "spark.x=None is not allowed"),
        ({"spark.authenticate": "maybe"}, "give True or False"),
        ({"spark.authenticate.secret": "x"}, "makes a secret of its own"),
        ({"spark.shuffle.service.enabled": True}, "starts without the secret"),
        ({"spark.ssl.keyPassword": "x"}, "credential provider"),
        ({"spark.hadoop.a.password": "x "}, "white space"),
        ({"spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword=x"}, "@/path/of/the/file"),
        ({"spark.executor.defaultJavaOptions": "-Da=b -Dfs.s3a.access.key=x"}, "@/path/of/the/file"),
        ({"spark.kerberos.keytab": "/k"}, "replaces the credentials"),
        ({"spark.driver.extraJavaOptions": "-Dhadoop.token.files=/t"}, "HADOOP_TOKEN_FILE_LOCATION"),
    ],
)
def test_what_can_not_be_a_setting_is_refused(given: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        spark_options(given)
