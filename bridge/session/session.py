"""`spark_session`: a Spark session on the Ray cluster; wraps `raydp.init_spark`.

It finds a Java runtime, sets the JVM options, and makes Python workers run this interpreter. It joins the
Ray cluster as jobs do, or starts a local cluster on loopback. It waits for the executors, because the first
query on a cluster that is too small would wait for ever.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import ray

from penstock.actors.client.cluster import connect
from penstock.bridge.session.security import (
    AUTHENTICATE,
    SessionFolder,
    authenticated,
    driver_jvm,
    known_to_driver,
    new_credentials,
    protect_gateway,
    split_secrets,
    take_credentials,
    use_id_of_executors,
)
from penstock.bridge.session.spark_options import find_java, spark_options, use_java
from penstock.runtime.errors import ConfigurationError, DeploymentError
from penstock.runtime.names import checked_keywords, checked_name
from penstock.runtime.time.durations import Duration, seconds_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


logger = logging.getLogger(__name__)

_LOCAL_FOLDERS: Final = "spark.local.dir"

_POLL: Final = 0.1
#: Seconds that a JVM has to register with a local cluster that this process starts.
_REGISTER_TIMEOUT: Final = "240"


@dataclass(frozen=True, slots=True)
class _Settings:
    app_name: str
    executors: int
    cores: int
    memory: str | int
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Running:
    settings: _Settings
    session: SparkSession


#: Part of the error of RayDP's master, which runs on any node.
_NO_JAVA: Final = "No such file or directory: 'java'"

#: The session of this process; RayDP allows one.
_running: _Running | None = None


@checked_keywords
def spark_session(
    app_name: str = "penstock",
    *,
    executors: int = 1,
    cores: int = 1,
    memory: str | int = "1g",
    configs: Mapping[str, object] | None = None,
    fault_tolerant: bool = False,
    start_timeout: Duration = 120.0,
    existing: SparkSession | None = None,
) -> SparkSession:
    """Return the Spark session of this program; its executors are actors on the Ray cluster.

    Calling it again with the same arguments returns the same session. Like every `SparkSession` it is a
    context manager; its `stop()` also ends RayDP's actors.

    Args:
        app_name: Name of the Spark application.
        executors: Number of executors.
        cores: CPU cores of each executor, which Ray reserves.
        memory: Heap of each executor, as Spark writes it ("600m", "2g") or in bytes.
        configs: More Spark settings. JVM options are added to those that Penstock needs.
        fault_tolerant: RayDP's fault-tolerant mode, which `ray.data.from_spark` needs; Penstock does not.
        start_timeout: Maximum seconds until all executors have started.
        existing: A session to use instead of starting one: RayDP's, or a local one. Penstock changes only its
            run-time settings, and does not stop it.

    Raises:
        ConfigurationError: No Java version fits, RayDP is not installed, an argument is invalid, or a session
            with other settings runs.
        DeploymentError: Spark or an executor does not start. If executors are missing, the message compares
            what they need with what Ray has.
    """
    seconds = seconds_in("start_timeout", start_timeout)
    if existing is not None:
        return _adopted(existing)
    wanted = _Settings(app_name, executors, cores, memory, spark_options(configs))
    _check(wanted)
    running = _living_session()
    if running is not None:
        return _same(running, wanted)
    _require_raydp()
    _prepare_environment()
    connect()
    _check_resources(wanted)
    return _start(wanted, fault_tolerant, seconds)


def _check(wanted: _Settings) -> None:
    for what, value in (("executors", wanted.executors), ("cores", wanted.cores)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            msg = f"{what}={value!r} is not allowed: give a whole number of at least 1"
            raise ConfigurationError(msg)
    checked_name("app_name", wanted.app_name)


def _require_raydp() -> None:
    try:
        import raydp  # noqa: F401
    except ImportError as error:
        msg = f"Spark on Ray needs RayDP and PySpark ({error}): pip install 'penstock[spark]'"
        raise ConfigurationError(msg) from error


def _living_session() -> _Running | None:
    global _running
    if _running is not None and not is_alive(_running.session):
        _running = None
    return _running


def is_alive(session: SparkSession) -> bool:
    context = session.sparkContext
    java_context = context._jsc
    return java_context is not None and not java_context.sc().isStopped()


def _same(running: _Running, wanted: _Settings) -> SparkSession:
    if running.settings != wanted:
        had = running.settings
        msg = (
            f"the Spark session '{had.app_name}' (executors={had.executors}, cores={had.cores}, "
            f"memory={had.memory!r}) runs in this process with other settings than those of this call; "
            "stop() it first, or give the same arguments"
        )
        raise ConfigurationError(msg)
    return running.session


def _prepare_environment() -> None:
    """Set the Java runtime, and this interpreter for Python workers, in the environment."""
    java_on_path = os.environ.get("PATH")
    use_java(find_java(os.environ), os.environ)
    if ray.is_initialized() and os.environ.get("PATH") != java_on_path:
        logger.warning(
            "Ray was started before Java was found (%s), so Ray's processes may not find Java; call "
            "spark_session before Ray starts, or put the bin folder of this Java version on the PATH",
            os.environ["JAVA_HOME"],
        )
    # Ray ends a worker that has not registered within a minute; a JVM on a busy machine may take longer.
    os.environ.setdefault("RAY_worker_register_timeout_seconds", _REGISTER_TIMEOUT)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _check_resources(wanted: _Settings) -> None:
    """Refuse executors that a cluster of a single node can't place."""
    cpu = wanted.options.get("spark.ray.raydp_spark_executor.actor.resource.cpu")
    cpus = wanted.cores if cpu is None else float(cpu)
    needed = wanted.executors * cpus
    total = ray.cluster_resources().get("CPU", 0.0)  # type: ignore[no-untyped-call]
    may_grow = len(ray.nodes()) > 1  # type: ignore[no-untyped-call]
    if needed > total and not may_grow:
        fits = math.floor(total / cpus)
        msg = (
            f"executors={wanted.executors} with {cpus:g} CPU(s) each takes {needed:g} in all, but the Ray "
            f"cluster has {total:g}: ask for {max(fits, 1)} or fewer, or let executors share CPUs with "
            'configs={"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5}'
        )
        raise DeploymentError(msg)


def _start(wanted: _Settings, fault_tolerant: bool, timeout: float) -> SparkSession:
    global _running
    import raydp

    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    os.environ.setdefault("SPARK_LOCAL_IP", address)
    begun = time.monotonic()
    parents = [parent.strip() for parent in wanted.options.get(_LOCAL_FOLDERS, "").split(",")]
    folder = SessionFolder(filter(None, parents), new_credentials())
    shown, secret = split_secrets(wanted.options)
    try:
        with known_to_driver(secret, folder.paths[0]):
            session: SparkSession = raydp.init_spark(
                wanted.app_name,
                wanted.executors,
                wanted.cores,
                wanted.memory,
                fault_tolerant_mode=fault_tolerant,
                configs=_in_folder(shown, folder),
            )
    except BaseException as error:
        try:
            raydp.stop_spark()
        finally:
            folder.remove()
        if isinstance(error, ConfigurationError) or not isinstance(error, Exception):
            raise
        raise DeploymentError(_no_start(error)) from error  # Ray, RayDP and Py4J raise many kinds
    _stop_with_raydp(session, folder)
    _running = _Running(wanted, session)
    session.sparkContext.setLogLevel("ERROR")
    try:
        protect_gateway()
        if wanted.options[AUTHENTICATE] == "true":
            use_id_of_executors(session)
        _await_executors(session, wanted, begun + timeout, timeout)
    except BaseException:
        session.stop()
        raise
    return session


def _in_folder(options: Mapping[str, str], folder: SessionFolder) -> dict[str, str]:
    settings = authenticated(options, folder.credentials)
    settings[_LOCAL_FOLDERS] = ",".join(map(str, folder.paths))
    jvm = driver_jvm()
    if jvm is not None:  # an earlier session or spark-submit started the JVM, which has read its options
        take_credentials(jvm, folder.credentials)
        forget_folders(jvm)
    return settings


def forget_folders(jvm: Any) -> None:
    """Make a driver's JVM look up its local folders again.

    Otherwise the JVM uses the folders of the last session, which other users may be able to read, or may own.
    """
    utils = getattr(jvm.org.apache.spark.util, "Utils$")  # Scala's object
    getattr(utils, "MODULE$").clearLocalRootDirs()


def _no_start(error: Exception) -> str:
    if _NO_JAVA in str(error):
        return (
            "Spark did not start on Ray: a node of the cluster has no `java` on its PATH. Start each node "
            "with a supported Java version (PATH=/path/of/java/bin:$PATH ray start ...). If this program "
            "starts Ray, call spark_session first"
        )
    return f"Spark did not start on Ray: {error}. `penstock doctor` shows whether the versions fit"


def _stop_with_raydp(session: Any, folder: SessionFolder) -> None:
    """End RayDP's actors and delete the files when the session or the program ends."""
    import raydp

    def stop() -> None:
        global _running
        session.__dict__.pop("stop", None)  # RayDP calls the session's own `stop`
        atexit.unregister(stop)
        try:
            raydp.stop_spark()
        finally:
            folder.remove()
        if _running is not None and _running.session is session:
            _running = None

    session.stop = stop
    atexit.register(stop)


def _await_executors(session: SparkSession, wanted: _Settings, deadline: float, timeout: float) -> None:
    while (there := executors_of(session)) < wanted.executors:
        if time.monotonic() > deadline:
            free = ray.available_resources()  # type: ignore[no-untyped-call]
            msg = (
                f"{there} of {wanted.executors} Spark executor(s) started within {timeout:g} s; each takes "
                f"{wanted.cores} CPU(s) and {wanted.memory} of memory, and Ray has free: "
                f"{free.get('CPU', 0):g} CPU(s), {free.get('memory', 0) / 1e9:.1f} GB. Ask for less, free "
                "resources, or wait longer with start_timeout="
            )
            raise DeploymentError(msg)
        time.sleep(_POLL)


def executors_of(session: SparkSession) -> int:
    # Spark counts its driver as an executor.
    java_context: Any = session.sparkContext._jsc
    return int(java_context.sc().getExecutorMemoryStatus().size()) - 1


def _adopted(session: SparkSession) -> SparkSession:
    if not is_alive(session):
        msg = "the existing Spark session is stopped; give a running session, or omit `existing`"
        raise ConfigurationError(msg)
    connect()
    session.conf.set("spark.sql.execution.arrow.pyspark.enabled", "true")
    return session


_LONGEST: Final = 600
#: The last line of a Python traceback: an exception's class and text. Excludes Java's exceptions.
_PYTHON_ERROR: Final = re.compile(
    r"^(?!org\.|java|py4j\.|scala\.)(?:[\w.]+\.)?(\w+(?:Error|Exception|Exit|Interrupt)): (.+)$"
)

_JAVA_ERROR: Final = re.compile(r"^(?:Caused by: |: )?(?!py4j\.)[\w.$]+\.(\w+(?:Exception|Error)): (.+)$")


def spark_error_text(error: BaseException, session: SparkSession) -> str:
    """The cause of a failed Spark job, in plain words.

    If the session was stopped, that is the cause. Otherwise return the first Python error in Spark's report,
    else the first Java error, else the first line.
    """
    if not is_alive(session):
        return (
            "the Spark session was stopped before all partitions were transferred; keep it until "
            "wait_for_transfer(job) returns, and start the job again"
        )
    return f"Spark failed: {shortened(str(error))}"


def shortened(text: str) -> str:
    r"""The line of a long report that holds the error.

    Example:
        >>> shortened("org.apache.spark.SparkException: aborted\n  File x\nValueError: no number: 'x'\n at y")
        "ValueError: no number: 'x'"
        >>> shortened("An error occurred\norg.apache.spark.SparkException: it broke\n\tat a.b.c")
        'SparkException: it broke'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern in (_PYTHON_ERROR, _JAVA_ERROR):
        for line in lines:
            found = pattern.match(line)
            if found is not None:
                return ": ".join(found.groups())[:_LONGEST]
    return (lines[0] if lines else "no reason was given")[:_LONGEST]
