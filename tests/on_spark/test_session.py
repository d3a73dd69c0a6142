"""The session itself: asked for twice, and taken over. Programs stop theirs in test_session_programs.py."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import ray
from pipelines.jobs import environment
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf

from penstock import ConfigurationError, DeploymentError, GraphError
from penstock.bridge.session import security
from penstock.bridge.session.security import known_to_driver
from penstock.bridge.session.session import forget_folders
from penstock.spark import from_spark, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shown_by(process: psutil.Process) -> str:
    """A process's command line and environment; one that has just ended shows nothing."""
    try:
        return " ".join(process.cmdline()) + str(process.environ())
    except psutil.NoSuchProcess:  # a zombie among them
        return ""


def test_asking_again_gives_the_same_session_and_other_settings_are_an_error(spark: SparkSession) -> None:
    from penstock.bridge.session import session

    running = session._running
    assert running is not None
    had = running.settings
    same = spark_session(
        had.app_name, executors=had.executors, cores=had.cores, memory=had.memory, configs=had.options
    )
    assert same is spark
    with pytest.raises(ConfigurationError, match=r"the Spark session 'tests' \(executors=2, cores=1"):
        spark_session("tests", executors=1)


@pytest.mark.long
def test_an_existing_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert spark_session(existing=spark) is spark


def test_python_workers_run_this_interpreter_and_nothing_listens_on_all_interfaces(
    spark: SparkSession,
) -> None:
    def interpreter(numbers: object) -> object:
        yield sys.executable

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(interpreter).collect() == [sys.executable]
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_spark_answers_nobody_without_the_secret_of_the_session_which_no_command_line_shows(
    spark: SparkSession,
) -> None:
    context: Any = spark.sparkContext
    secret = context._jsc.sc().env().securityManager().getSecretKey()
    assert len(secret) == 64
    assert secret not in str(context.getConf().getAll())
    family = [each for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    assert len(family) >= 4, "the driver, RayDP's master and two executors"
    shown = [shown_by(each) for each in family]
    assert not [line for line in shown if secret in line]
    conf = context.getConf()
    driver = f"spark://CoarseGrainedScheduler@{conf.get('spark.driver.host')}:{conf.get('spark.driver.port')}"
    for url in (driver, context.master.replace("ray://", "spark://")):
        assert refusal_of(context._jvm, "true", url) is None
        assert refusal_of(context._jvm, "false", url) is not None


def refusal_of(java: Any, authenticates: str, url: str) -> str | None:
    """Why an endpoint does not answer a client that has the driver's secret, or one that sends none."""
    conf = java.org.apache.spark.SparkConf(False).set("spark.authenticate", authenticates)
    conf = conf.set("spark.rpc.askTimeout", "30s").set("spark.rpc.lookupTimeout", "30s")
    kind = java.org.apache.spark.SecurityManager
    default = getattr(kind, "$lessinit$greater$default$3")()
    manager = kind(conf, java.scala.Option.empty(), default)
    create = java.org.apache.spark.rpc.RpcEnv.create
    client = create("client", "127.0.0.1", "127.0.0.1", -1, conf, manager, 0, True)
    try:
        client.setupEndpointRefByURI(url)
    except Py4JJavaError as refused:
        return str(refused.java_exception)
    finally:
        client.shutdown()
    return None


def test_secret_settings_reach_the_driver_and_no_command_line_or_environment(
    spark: SparkSession, tmp_path: Path
) -> None:
    context: Any = spark.sparkContext
    secret = "to=tell: nobody\\ #! ü"
    assert context._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == secret
    assert context.getConf().get("spark.hadoop.fs.s3a.secret.key") == secret
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    assert not [line for line in map(shown_by, family) if "to=tell" in line]
    # The next session of this process begins with the same JVM.
    assert SparkConf().get("spark.hadoop.fs.s3a.secret.key") is None
    with known_to_driver({"spark.hadoop.a.password": secret}, tmp_path):
        assert SparkConf().get("spark.hadoop.a.password") == secret
    assert SparkConf().get("spark.hadoop.a.password") is None
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_blocks_go_between_driver_and_executors_both_ways(spark: SparkSession) -> None:
    context = spark.sparkContext
    sent = context.broadcast(bytes(1_000_000))
    made = context.parallelize(range(2), 2).map(lambda number: sent.value + bytes(2_000_000))
    # A result of more than a megabyte is a block of the executor, which the driver fetches.
    assert [len(each) for each in made.collect()] == [3_000_000, 3_000_000]


@pytest.mark.long
@pytest.mark.parametrize(("name", "gone"), [("_BACKEND", "gone.Backend"), ("_NETWORK", "gone.")])
def test_versions_that_can_not_be_authenticated_are_an_error(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str, gone: str
) -> None:
    monkeypatch.setattr(security, name, gone)
    with pytest.raises(DeploymentError, match=r"Spark 3\..* and RayDP 1\..* can't be authenticated: .*gone"):
        security.use_id_of_executors(spark)


@pytest.mark.long
def test_the_jvm_of_raydps_master_obeys_only_who_has_its_token(spark: SparkSession) -> None:
    import raydp.context

    master = raydp.context._global_spark_context._spark_cluster._spark_master_handle
    jvm = psutil.Process(ray.get(master.__ray_call__.remote(pid_of_jvm)))
    ports = [each.laddr.port for each in jvm.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert ports
    for port in ports:
        stranger = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        with pytest.raises((Py4JError, Py4JNetworkError)):
            stranger.jvm.java.lang.System.getProperty("user.name")
        stranger.close()


def pid_of_jvm(master: Any) -> int:
    return int(master._gateway.proc.pid)


@pytest.mark.long
def test_files_of_a_session_are_for_its_user(spark: SparkSession) -> None:
    (folder,) = (Path(each) for each in spark.conf.get("spark.local.dir").split(","))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "credentials").stat().st_mode) == 0o600
    # An executor that another test killed has left its folder, and its successor has one, too.
    assert len(list(folder.glob("blockmgr-*"))) >= 3, "of the driver and at least two executors"
    assert not [each for each in folder.parent.glob("blockmgr-*") if each.stat().st_uid == os.geteuid()]


@pytest.mark.long
def test_a_later_session_of_the_same_jvm_has_its_own_folder(spark: SparkSession, tmp_path: Path) -> None:
    jvm: Any = spark.sparkContext._jvm
    utils, conf = jvm.org.apache.spark.util.Utils, jvm.org.apache.spark.SparkConf()
    conf.set("spark.local.dir", str(tmp_path))
    assert utils.getLocalDir(conf).startswith(spark.conf.get("spark.local.dir"))
    forget_folders(jvm)
    assert utils.getLocalDir(conf).startswith(str(tmp_path))
    forget_folders(jvm)


def test_python_workers_begin_with_pandas_arrow_and_ray(spark: SparkSession) -> None:
    def loaded(numbers: object) -> object:
        yield sorted({"pandas", "pyarrow", "ray"} & set(sys.modules))

    assert spark.sparkContext.parallelize([1], 1).mapPartitions(loaded).collect() == [
        ["pandas", "pyarrow", "ray"]
    ]


def test_arguments_of_a_transfer_that_can_not_be_meant_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(GraphError, match="batch_format must be 'arrow' or 'rows', not 'pandas'"):
        from_spark(environment(tmp_path), spark.range(1), batch_format="pandas")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="window=0 is not allowed"):
        from_spark(environment(tmp_path), spark.range(1), window=0)
    with pytest.raises(GraphError, match="several columns called 'a'"):
        from_spark(environment(tmp_path), spark.sql("SELECT 1 AS a, 2 AS a"))
