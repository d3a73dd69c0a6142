"""Protects a Spark session from other users of its nodes: secret settings, authentication and files.

**Command lines.** RayDP and PySpark write the settings that they get into command lines, which all users of a
node can read. So settings with a secret name or value are passed in another way. A new driver's JVM reads
them from a file with mode 0600, into the system properties from which each `SparkConf` begins. A running JVM
gets them by Py4J, which has a token. Executors ask the driver for its settings. RayDP's master needs no
secret setting.

**The session's secret** is in a Hadoop token file with mode 0600, as in Spark on YARN. Command lines name the
file (`-Dhadoop.token.files`). Each JVM reads it into its user's credentials, which Spark checks before the
setting `spark.authenticate.secret`. The driver still requires that setting, so it gets a placeholder.

**The application's id.** A block server gives a block only to clients that name the id of its application.
RayDP's master makes an id for the executors. The driver uses the id that Spark invents, because RayDP's
scheduler backend does not override `applicationId`. So executors and driver would refuse each other.
`use_id_of_executors` puts the executors' id into the driver's block server and client before the first query.
These objects have no setters, so the function uses reflection.

**RayDP's gateway.** RayDP's master controls its JVM through a Py4J port on loopback without authentication.
Any process that connects can run code as the user of the JVM. `protect_gateway` opens a port that requires a
token, and closes the unprotected port.

**Files.** The umask decides the mode of Spark's folders for spilled and shuffled data, so usually other users
can read them. The folder around them has mode 0700. Its path is the same on all nodes, because Spark has one
setting for all its processes.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ray

from penstock.actors.shared.node_processes import alive_nodes, answers_of_nodes, own_node
from penstock.runtime.errors import ConfigurationError, DeploymentError, StorageError
from penstock.runtime.io.scratch import ScratchFolder
from penstock.runtime.redaction import redacted

AUTHENTICATE: Final = "spark.authenticate"

#: Settings with the JVM options of Spark's driver, its executors and RayDP's application master.
JVM_SETTINGS: Final = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)

#: Spark's `spark.redaction.regex`, and names of the keys of object stores.
_SECRET_NAME: Final = re.compile(
    r"secret|passw|passphrase|token|(?:access|account|api|encryption|private|shared)[._-]?key|[.]sas[.]",
    re.IGNORECASE,
)

_JAVA_OPTIONS: Final = "JavaOptions"
#: RayDP's own settings, such as names of resources. RayDP reads them before the driver starts.
_RAYDP: Final = "spark.ray."
#: Prefixes of settings that RayDP writes into command lines of executors, wherever the settings come from.
_STARTUP: Final = ("spark.auth", "spark.rpc", "spark.network", "spark.ssl")
_JAVA_OPTION: Final = re.compile(r"-D(?!hadoop\.token\.files=)([^\s=]*)=\S")
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES: Final = "--properties-file"
#: Characters with a special meaning in a Java properties file.
_ESCAPED: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    mark: f"\\{mark}" for mark in " =:#!"
}


def split_secrets(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split settings into public and secret settings; refuse a secret that needs a command line."""
    secret = {name: value for name, value in options.items() if _is_secret(name, value)}
    for name, value in options.items():
        if name.endswith(_JAVA_OPTIONS):
            _check_java_options(name, value)
    for name, value in secret.items():
        if name.startswith(_STARTUP):
            msg = (
                f"{name} is not allowed: RayDP would write it into the command lines of executors, which all "
                "users of a node can read. Keep it in a Hadoop credential provider "
                "(spark.hadoop.hadoop.security.credential.provider.path)"
            )
            raise ConfigurationError(msg)
        if value != value.strip():
            msg = f"{name} begins or ends with white space, which Spark would remove"
            raise ConfigurationError(msg)
    return {name: value for name, value in options.items() if name not in secret}, secret


def _is_secret(name: str, value: str) -> bool:
    if name.startswith(_RAYDP) or name.endswith(_JAVA_OPTIONS) or not value:
        return False
    return _SECRET_NAME.search(name) is not None or redacted(value) != value


def _check_java_options(name: str, value: str) -> None:
    for property_name in _JAVA_OPTION.findall(value):
        if _SECRET_NAME.search(property_name):
            msg = (
                f"-D{property_name} in {name} is not allowed: all users of a node can read command lines. "
                "Write it into a file that only you can read, on each node, and give @/path/of/the/file"
            )
            raise ConfigurationError(msg)


def driver_jvm() -> Any:
    from pyspark import SparkContext

    if SparkContext._jvm is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # spark-submit has started a JVM for this program
    return SparkContext._jvm


@contextmanager
def known_to_driver(secret: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Give secret settings to a Spark context that the `with` block makes.

    The context's JVM forgets them at the end of the block.

    Args:
        folder: Folder for a file that only this user can read.
    """
    if not secret:
        yield
        return
    jvm = driver_jvm()
    try:
        if jvm is None:
            with _in_file(secret, folder):
                yield
        else:
            for name, value in secret.items():
                jvm.java.lang.System.setProperty(name, value)
            yield
    finally:
        jvm = driver_jvm()
        for name in secret if jvm is not None else ():
            jvm.java.lang.System.clearProperty(name)


@contextmanager
def _in_file(secret: Mapping[str, str], folder: Path) -> Iterator[None]:
    before = os.environ.get(_SUBMIT)
    if before is not None and any(word.startswith(_PROPERTIES) for word in shlex.split(before)):
        msg = f"{_SUBMIT} has {_PROPERTIES}: write {', '.join(sorted(secret))} into that file instead"
        raise ConfigurationError(msg)
    path = folder / "driver.properties"
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(file, "w", encoding="utf-8") as written:
        written.write(_defaults() + java_properties(secret))
    os.environ[_SUBMIT] = f"{_PROPERTIES} {shlex.quote(str(path))} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        path.unlink()
        if before is None:
            del os.environ[_SUBMIT]
        else:
            os.environ[_SUBMIT] = before


def _defaults() -> str:
    """The text of `spark-defaults.conf`, which Spark does not read in addition to another file."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    path = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
    return path.read_text(encoding="utf-8") + "\n" if path.exists() else ""


def java_properties(settings: Mapping[str, str]) -> str:
    escapes = str.maketrans(_ESCAPED)
    return "".join(
        f"{name.translate(escapes)}={value.translate(escapes)}\n" for name, value in settings.items()
    )


_SECRET: Final = "spark.authenticate.secret"

_NOT_HERE: Final = "see-hadoop.token.files"
#: The name under which Spark looks for its secret, as Hadoop writes it.
_ALIAS: Final = b"sparkCookie"
#: Hadoop's mark of a token file, its format "writable", and the number of its tokens.
_BEGIN: Final = b"HDTS\x00\x00"

_NETWORK: Final = "org.apache.spark.network."

#: Maximum seconds for RayDP's master to answer, or for all nodes to run a task and answer.
_PATIENCE: Final = 120.0

_BACKEND: Final = "org.apache.spark.scheduler.cluster.raydp.RayCoarseGrainedSchedulerBackend"


def new_credentials() -> bytes:
    secret = secrets.token_hex(32).encode()
    return b"".join((_BEGIN, b"\x01", _counted(_ALIAS), _counted(secret)))


def _counted(text: bytes) -> bytes:
    """The text, preceded by its length; Hadoop encodes lengths up to 127 in one byte."""
    return bytes([len(text)]) + text


def authenticated(options: Mapping[str, str], credentials: Path) -> dict[str, str]:
    """Add the settings with which all processes of a session read its secret, if it has one."""
    found = dict(options)
    if found[AUTHENTICATE] == "true":
        found[_SECRET] = _NOT_HERE
        for setting in JVM_SETTINGS:
            found[setting] = f"-Dhadoop.token.files={credentials} {found[setting]}"
    return found


def take_credentials(jvm: Any, credentials: Path) -> None:
    """Give a new session's secret to the JVM of a running driver."""
    security = jvm.org.apache.hadoop.security
    conf = jvm.org.apache.hadoop.conf.Configuration()
    found = security.Credentials.readTokenStorageFile(jvm.java.io.File(str(credentials)), conf)
    security.UserGroupInformation.getCurrentUser().addCredentials(found)


def use_id_of_executors(session: Any) -> None:
    """Put the executors' application id into the driver's block server and client.

    Raises:
        DeploymentError: Spark's classes differ from those of the supported versions.
    """
    from py4j.protocol import Py4JError

    context = session.sparkContext._jsc.sc()
    classes = session._jvm.java.lang.Class
    try:
        application = getattr(context.schedulerBackend(), f"{_BACKEND.replace('.', '$')}$$appId")().get()
        if context.applicationId() == application:
            return
        service = context.env().blockManager().blockTransferService()
        transport = _field(classes, "netty.NettyBlockTransferService", "transportContext").get(service)
        server = _field(classes, "TransportContext", "rpcHandler").get(transport)
        clients = _field(classes, "shuffle.BlockStoreClient", "clientFactory").get(service)
        (client,) = _field(classes, "client.TransportClientFactory", "clientBootstraps").get(clients)
        for changed, of in (("netty.NettyBlockRpcServer", server), ("crypto.AuthClientBootstrap", client)):
            _field(classes, changed, "appId").set(of, application)
    except (Py4JError, TypeError, ValueError, AttributeError) as error:
        raise DeploymentError(_no_match(error)) from error


def _field(classes: Any, of: str, name: str) -> Any:
    field = classes.forName(_NETWORK + of).getDeclaredField(name)
    field.setAccessible(True)
    return field


def _no_match(error: Exception) -> str:
    from importlib.metadata import version

    cause = " ".join(str(error).split())[:300]
    return (
        f"Spark {version('pyspark')} and RayDP {version('raydp')} can't be authenticated: {cause}. "
        "`penstock doctor` names the versions that fit. On nodes where you trust all users, "
        'configs={"spark.authenticate": False} turns authentication off'
    )


def protect_gateway() -> None:
    """Let the JVM of RayDP's master accept commands only from the master's process, which gets a token.

    Raises:
        DeploymentError: RayDP's classes differ from those of the supported versions.
    """
    import raydp.context

    try:
        master = raydp.context._global_spark_context._spark_cluster._spark_master_handle
        ray.get(master.__ray_call__.remote(replace_gateway, secrets.token_hex(32)), timeout=_PATIENCE)
    except (AttributeError, ray.exceptions.RayError) as error:
        raise DeploymentError(_no_match(error)) from error


def replace_gateway(master: Any, token: str) -> None:
    """Open a Py4J port that requires a token and close the old one; runs in the process of RayDP's master."""
    from py4j.java_gateway import GatewayParameters, JavaGateway

    old = master._gateway
    jvm = old.jvm
    address = jvm.java.net.InetAddress.getLoopbackAddress()
    builder = jvm.py4j.GatewayServer.GatewayServerBuilder().entryPoint(old.entry_point)
    server = builder.javaPort(0).javaAddress(address).authToken(token).build()
    server.start()
    parameters = GatewayParameters(port=server.getListeningPort(), auto_convert=True, auth_token=token)
    gateway = JavaGateway(gateway_parameters=parameters)
    gateway.proc = old.proc
    master._app_master_java_bridge = gateway.entry_point.getAppMasterBridge()
    master._gateway = gateway
    old.shutdown()


logger = logging.getLogger(__name__)

_CREDENTIALS: Final = "credentials"
_REMEDY: Final = 'Let TMPDIR or configs={"spark.local.dir": ...} name a folder that all nodes can write to'


class SessionFolder:
    """Folders of one session on all nodes, until `remove`; the first one holds the credentials.

    Args:
        parents: Parent folders, as in `spark.local.dir`; empty for the temporary folder.

    Raises:
        DeploymentError: A node can't make the folders.
    """

    def __init__(self, parents: Iterable[str], credentials: bytes) -> None:
        roots = [Path(parent) for parent in parents] or [Path(tempfile.gettempdir())]
        self._scratch: list[ScratchFolder] = []
        self.paths: list[Path] = []
        try:
            for root in roots:
                self._scratch.append(ScratchFolder(root, kind="spark", remedy=_REMEDY))
                self.paths.append(self._scratch[-1].path)
            write_here(self.paths, credentials)
            for node, failure in _failures_elsewhere(write_here, self.paths, credentials):
                msg = f"node {node[:8]} has no folder for the files of a Spark session: {failure}. {_REMEDY}"
                raise DeploymentError(msg) from failure
        except StorageError as error:
            self._remove_here()
            raise DeploymentError(str(error)) from error
        except BaseException:
            self.remove()
            raise

    @property
    def credentials(self) -> Path:
        return self.paths[0] / _CREDENTIALS

    def remove(self) -> None:
        """Delete the folders on all nodes that answer; idempotent."""
        if ray.is_initialized():
            for node, error in _failures_elsewhere(remove_here, self.paths):
                logger.warning("node %s keeps %s: %s", node[:8], self.paths, error)
        self._remove_here()

    def _remove_here(self) -> None:
        for scratch in self._scratch:
            scratch.remove()


def _failures_elsewhere(function: Callable[..., None], *arguments: Any) -> Iterator[tuple[str, Exception]]:
    """Call a function on all other nodes at once; yield the nodes where it fails."""
    here = own_node()
    others = [node for node in alive_nodes() if node != here]
    for node, answer in answers_of_nodes(others, _PATIENCE, function, *arguments):
        if answer is not None:
            yield node, answer


def write_here(paths: list[Path], credentials: bytes) -> None:
    """Make the folders on this node, and write the credentials into the first.

    Nodes may share a disk, so a folder may exist already. Then it must be private to this user.
    """
    for path in paths:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            there = path.lstat()
            private = stat.S_ISDIR(there.st_mode) and stat.S_IMODE(there.st_mode) == 0o700
            if not private or there.st_uid != os.geteuid():
                msg = f"{path} exists, and is not a folder that only this user can read"
                raise PermissionError(msg) from None
    unfinished = paths[0] / f"{_CREDENTIALS}.{os.getpid()}"
    file = os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as written:
        written.write(credentials)
    unfinished.replace(paths[0] / _CREDENTIALS)


def remove_here(paths: list[Path]) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
