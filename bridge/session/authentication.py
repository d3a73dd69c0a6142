"""Authentication of a Spark session: its ports answer only processes that know its secret.

**The secret.** RayDP writes settings into command lines, which all users of a node can read. So the secret is
in a Hadoop token file with mode 0600, as Spark on YARN has it. Command lines name the file
(`-Dhadoop.token.files`). Each JVM reads it into its user's credentials, which Spark asks before the setting
`spark.authenticate.secret`. Spark's driver demands the setting all the same, so it holds no secret.

**The application's id.** A server of blocks gives a block only to clients that have named the id of its own
application. RayDP's master makes an id for the executors. The driver continues with the id that Spark
invents, because RayDP's scheduler backend does not override `applicationId`. So executors and driver would
refuse each other. `use_id_of_executors` puts the executors' id into the driver's server and client of
blocks, before the first query. They have no setters, so this is done by reflection, and an error follows
where it does not fit.

**RayDP's gateway.** RayDP's master steers its JVM by a Py4J port on loopback that asks for nothing: each
process that connects runs code as its user. `protect_gateway` opens one with a token, and closes the other.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import ray

from penstock.bridge.session.spark_options import AUTHENTICATE, JVM_SETTINGS
from penstock.runtime.errors import DeploymentError

_SECRET: Final = "spark.authenticate.secret"
_NOT_HERE: Final = "see-hadoop.token.files"
#: The name under which Spark looks for its secret, as Hadoop writes it.
_ALIAS: Final = b"sparkCookie"
#: Hadoop's mark of a token file, its format "writable", and the number of its tokens.
_BEGIN: Final = b"HDTS\x00\x00"
_NETWORK: Final = "org.apache.spark.network."
_BACKEND: Final = "org.apache.spark.scheduler.cluster.raydp.RayCoarseGrainedSchedulerBackend"


def new_credentials() -> bytes:
    secret = secrets.token_hex(32).encode()
    return b"".join((_BEGIN, b"\x01", _counted(_ALIAS), _counted(secret)))


def _counted(text: bytes) -> bytes:
    """Text with its length before it, which Hadoop writes into one byte up to 127."""
    return bytes([len(text)]) + text


def authenticated(options: Mapping[str, str], credentials: Path) -> dict[str, str]:
    """Settings that make all processes of a session take its secret from a file.

    Args:
        options: All settings; without `spark.authenticate` they are returned unchanged.
    """
    found = dict(options)
    if found[AUTHENTICATE] == "true":
        found[_SECRET] = _NOT_HERE
        for setting in JVM_SETTINGS:
            found[setting] = f"-Dhadoop.token.files={credentials} {found[setting]}"
    return found


def take_credentials(jvm: Any, credentials: Path) -> None:
    """Give a new session's secret to a driver's JVM, which read its options before."""
    security = jvm.org.apache.hadoop.security
    conf = jvm.org.apache.hadoop.conf.Configuration()
    found = security.Credentials.readTokenStorageFile(jvm.java.io.File(str(credentials)), conf)
    security.UserGroupInformation.getCurrentUser().addCredentials(found)


def use_id_of_executors(session: Any) -> None:
    """Put the executors' application id into the driver's server and client of blocks.

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
        "`penstock doctor` names the versions that fit. On nodes whose users you all trust, "
        'configs={"spark.authenticate": False} leaves it out'
    )


def protect_gateway() -> None:
    """Let the JVM of RayDP's master accept commands only from its own process.

    Raises:
        DeploymentError: The master differs from that of the supported versions.
    """
    import raydp.context

    try:
        master = raydp.context._global_spark_context._spark_cluster._spark_master_handle
        ray.get(master.__ray_call__.remote(replace_gateway, secrets.token_hex(32)))
    except (AttributeError, ray.exceptions.RayError) as error:
        raise DeploymentError(_no_match(error)) from error


def replace_gateway(master: Any, token: str) -> None:
    """Open a Py4J port that requires a token, close the other; runs in the process of RayDP's master."""
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
