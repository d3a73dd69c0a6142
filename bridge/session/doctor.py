"""`penstock doctor`: checks that the installed Ray, RayDP, Spark, Java and Arrow work together.

It starts no cluster and no session, and it also runs where Spark is not installed.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from packaging.requirements import Requirement
from packaging.version import Version

from penstock.bridge.session.spark_options import find_java
from penstock.runtime.errors import ConfigurationError, PenstockError

_INSTALL: Final = "pip install 'penstock[spark]'"

#: Distributions that the bridge works with, and their common names.
_PACKAGES: Final = {
    "ray": "Ray",
    "raydp": "RayDP",
    "pyspark": "Spark",
    "pyarrow": "Arrow",
    "pandas": "pandas",
}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    name: str
    version: str | None
    fits: bool
    note: str = ""

    def __str__(self) -> str:
        mark = "ok " if self.fits else "NO "
        return f"{mark} {self.name:<8} {self.version or 'missing':<12} {self.note}".rstrip()


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def requirements() -> dict[str, Requirement]:
    """Requirements by distribution, including those of the extra `spark`."""
    found: dict[str, Requirement] = {}
    for text in requires("penstock") or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": "spark"}):
            found[requirement.name] = requirement
    return found


def examine(
    wanted: Mapping[str, Requirement],
    installed: Callable[[str], str | None],
    environment: Mapping[str, str],
) -> list[DoctorFinding]:
    findings = [DoctorFinding("Python", platform.python_version(), sys.version_info >= (3, 11))]
    for distribution, name in _PACKAGES.items():
        findings.append(_package(name, wanted.get(distribution), installed(distribution)))
    findings.append(_java(environment))
    return findings


def _package(name: str, wanted: Requirement | None, installed: str | None) -> DoctorFinding:
    if installed is None:
        return DoctorFinding(name, None, False, _INSTALL)
    if wanted is None or wanted.specifier.contains(Version(installed), prereleases=True):
        return DoctorFinding(name, installed, True)
    return DoctorFinding(name, installed, False, f"needs {wanted.specifier}: {_INSTALL}")


def _java(environment: Mapping[str, str]) -> DoctorFinding:
    try:
        java = find_java(environment)
    except ConfigurationError as error:
        return DoctorFinding("Java", None, False, str(error))
    return DoctorFinding("Java", str(java.version), True, f"{java.origin}: {java.home}")


def doctor() -> None:
    """Check the versions of Ray, RayDP, Spark, Java and Arrow; exit code 1 if they don't fit."""
    findings = examine(requirements(), installed_version, os.environ)
    for finding in findings:
        print(finding)
    if not all(finding.fits for finding in findings):
        bad = ", ".join(finding.name for finding in findings if not finding.fits)
        msg = f"the Spark bridge will not work: look at {bad}. Jobs without Spark need only Ray and Arrow"
        raise PenstockError(msg)
    print("everything fits")
