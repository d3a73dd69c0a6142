"""The Spark settings that RayDP, Arrow and Python workers need, merged with the user's settings.

On Java 17 Ray's serialiser and Arrow use packages that Java has closed. Without these options the first
exchange of data ends RayDP's application master, with an error that does not mention them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.bridge.session.secret_settings import split_secrets
from penstock.runtime.errors import ConfigurationError

_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.math",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)

#: Options of every JVM. Java 8 ignores `--add-opens`.
JVM_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Dio.netty.tryReflectionSetAccessible=true",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
)

#: The settings of Spark's driver, its executors and RayDP's application master that take them.
JVM_SETTINGS: Final = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)

_QUIET_LOG: Final = Path(__file__).with_name("quiet-log4j2.properties")

AUTHENTICATE: Final = "spark.authenticate"

#: The module that forks the executors' Python workers.
PYTHON_DAEMON: Final = "penstock.bridge.session.python_daemon"

_TOKEN_FILES: Final = "-Dhadoop.token.files"
#: Settings whose processes don't get the secret of a session.
_WITHOUT_SECRET: Final = {
    "spark.shuffle.service.enabled": "RayDP's shuffle service starts without the secret",
    "spark.kerberos.keytab": "a login by keytab replaces the credentials that hold the secret",
    "spark.yarn.keytab": "a login by keytab replaces the credentials that hold the secret",
}

#: Rows of the Arrow batches that Spark gives to Python workers. Larger batches are hardly faster, and each
#: batch is held in memory whole, however wide its rows are.
ARROW_BATCH_ROWS: Final = 16_384


def spark_options(given: Mapping[str, object] | None = None) -> dict[str, str]:
    """All settings of a session.

    The user's JVM options come after the needed ones and win; the user's other settings replace the defaults.

    Raises:
        ConfigurationError: A name or a value can't be a Spark setting.

    Example:
        >>> options = spark_options({"spark.driver.extraJavaOptions": "-Xss4m", "spark.ui.enabled": True})
        >>> options["spark.driver.extraJavaOptions"].endswith(" -Xss4m"), options["spark.ui.enabled"]
        (True, 'true')
    """
    users = {_checked_name(name): _text(name, value) for name, value in (given or {}).items()}
    _check_authentication(users)
    options = {
        # Spark's web interface listens on every interface of the machine.
        "spark.ui.enabled": "false",
        AUTHENTICATE: "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.log4j.config.file.name": str(_QUIET_LOG),
        "spark.python.daemon.module": PYTHON_DAEMON,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_BATCH_ROWS),
        **users,
    }
    for setting in JVM_SETTINGS:
        own = users.get(setting, "").split()
        missing = [option for option in JVM_OPTIONS if option not in own]
        options[setting] = " ".join([*missing, *own])
    split_secrets(options)
    return options


def _check_authentication(users: Mapping[str, str]) -> None:
    """Refuse settings that can't have a secret, or would show it, unless authentication is turned off.

    Raises:
        ConfigurationError: The message names the setting.
    """
    if users.get(AUTHENTICATE, "true") not in {"true", "false"}:
        msg = f"{AUTHENTICATE}={users[AUTHENTICATE]!r} is not allowed: give True or False"
        raise ConfigurationError(msg)
    if users.get(AUTHENTICATE) == "false":
        return
    wrong = next((name for name in users if name.startswith(f"{AUTHENTICATE}.secret")), None)
    if wrong is not None:
        msg = f"{wrong} is not allowed: each session makes a secret of its own; leave it out"
        raise ConfigurationError(msg)
    for name, problem in _WITHOUT_SECRET.items():
        if users.get(name, "false") != "false":
            msg = (
                f"{name} is not allowed with {AUTHENTICATE}: {problem}. Leave it out, or add "
                f'"{AUTHENTICATE}": False where you trust all users of the nodes and of their network'
            )
            raise ConfigurationError(msg)
    wrong = next((name for name in JVM_SETTINGS if _TOKEN_FILES in users.get(name, "")), None)
    if wrong is not None:
        msg = (
            f"{_TOKEN_FILES} in {wrong} is not allowed with {AUTHENTICATE}: the session's secret comes that "
            "way. Name your token file in HADOOP_TOKEN_FILE_LOCATION"
        )
        raise ConfigurationError(msg)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.startswith("spark."):
        msg = f"{name!r} is no Spark setting: their names begin with 'spark.'"
        raise ConfigurationError(msg)
    return name


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"{name}={value!r:.80} is not allowed: Spark's settings are strings, numbers or booleans"
    raise ConfigurationError(msg)
