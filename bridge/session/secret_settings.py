"""Settings whose values are secrets, such as keys of S3, on their way to Spark's driver.

RayDP and PySpark write the settings that they get into command lines, which all users of a node can read. So
those with a secret name or value go another way. The driver's JVM finds them in its system properties, from
which each `SparkConf` begins. A new JVM reads them from a file with mode 0600. One that runs gets them by
Py4J, which has a token. Executors ask the driver for its settings. RayDP's master does not need these.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.redaction import redacted

#: Spark's `spark.redaction.regex`, and the keys of other stores.
_SECRET_NAME: Final = re.compile(
    r"secret|passw|passphrase|token|(?:access|account|api|encryption|private|shared)[._-]?key|[.]sas[.]",
    re.IGNORECASE,
)
_JAVA_OPTIONS: Final = "JavaOptions"
#: RayDP's own settings, such as names of resources. It reads them before the driver starts.
_RAYDP: Final = "spark.ray."
#: RayDP writes settings of these into command lines of executors, wherever they come from.
_STARTUP: Final = ("spark.auth", "spark.rpc", "spark.network", "spark.ssl")
_JAVA_OPTION: Final = re.compile(r"-D(?!hadoop\.token\.files=)([^\s=]*)=\S")
_SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES: Final = "--properties-file"
#: Characters with a meaning in a file of Java properties.
_ESCAPED: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"} | {
    mark: f"\\{mark}" for mark in " =:#!"
}


def split_secrets(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings that any user may see, and secret ones.

    Raises:
        ConfigurationError: A secret can only be passed by a command line.
    """
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
            msg = f"{name} begins or ends with white space, which Spark would leave out"
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
        SparkContext._ensure_initialized()  # spark-submit has started one, which waits for its program
    return SparkContext._jvm


@contextmanager
def known_to_driver(secret: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Let a Spark context that is made inside have these settings; its JVM forgets them afterwards.

    Args:
        folder: For a file; only this user can read it.

    Raises:
        ConfigurationError: PYSPARK_SUBMIT_ARGS names a file already.
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
        _forget(driver_jvm(), secret)


def _forget(jvm: Any, secret: Mapping[str, str]) -> None:
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
    """The text of `spark-defaults.conf`, which Spark does not read beside another file."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    path = Path(os.environ.get("SPARK_CONF_DIR") or os.path.join(home, "conf"), "spark-defaults.conf")
    return path.read_text(encoding="utf-8") + "\n" if path.exists() else ""


def java_properties(settings: Mapping[str, str]) -> str:
    lines = (f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())
    return "".join(lines)


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(letter, letter) for letter in text)
