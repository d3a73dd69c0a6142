"""The checks of `penstock doctor` that start no cluster and open no storage: versions, memory, RocksDB.

Another package adds a check with an entry point of the group `penstock.checks`. It names a function without
arguments that returns a `CheckResult`, or `None` if there is nothing to check.
"""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, entry_points, metadata, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from penstock._version import __version__
from penstock.runtime.errors import PenstockError
from penstock.runtime.io.rocksdb.database import Database

CHECK_GROUP: Final = "penstock.checks"
#: Extras for work on Penstock itself, and for tests.
_NOT_FOR_JOBS: Final = frozenset({"dev", "docs", "mutants", "testing"})
#: Dependencies with a line of their own.
_SHOWN: Final = {"ray": "Ray", "pyarrow": "Arrow"}

_SHARED_MEMORY: Final = Path("/dev/shm")
#: Ray's default: the share of memory for the object store, and the size up to which a disk may replace
#: `/dev/shm`.
_OBJECT_STORE_SHARE: Final = 0.3
_OBJECT_STORE_BYTES: Final = 10_000_000_000
_DATABASE_BYTES: Final = 16 * 1024 * 1024


class CheckStatus(Enum):
    OK = "ok"
    MISSING = "missing"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check.

    Attributes:
        text: Versions and measurements, or the error with its remedy.
        is_required: Whether no job can run unless this check is `OK`.
    """

    name: str
    status: CheckStatus
    text: str
    is_required: bool = False

    def __str__(self) -> str:
        return f"{self.status.value:<8} {self.name:<14} {self.text}".rstrip()


#: Returns the installed version of a distribution; `None` if it is not installed.
Installed = Callable[[str], str | None]


def installed_version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def check_environment() -> Iterator[CheckResult]:
    """Check this machine and the installed packages."""
    declared = metadata("penstock")
    requirements = [Requirement(text) for text in declared.get_all("Requires-Dist") or ()]
    extras = [extra for extra in declared.get_all("Provides-Extra") or () if extra not in _NOT_FOR_JOBS]
    yield check_python(SpecifierSet(declared["Requires-Python"]), platform.python_version())
    yield CheckResult("Penstock", CheckStatus.OK, __version__)
    yield from check_dependencies(requirements_of(None, requirements), installed_version)
    if sys.platform == "linux":
        total = psutil.virtual_memory().total
        free = shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.is_dir() else 0
        yield check_shared_memory(total, free)
    for extra in extras:
        result = check_extra(extra, requirements_of(extra, requirements), installed_version)
        yield check_rocksdb(result) if extra == "rocksdb" else result
    for point in sorted(entry_points(group=CHECK_GROUP), key=lambda point: point.name):
        added: CheckResult | None = point.load()()
        if added is not None:
            yield added


def requirements_of(extra: str | None, declared: Iterable[Requirement]) -> list[Requirement]:
    """Return the requirements that an extra adds to the dependencies; with `None`, the dependencies."""
    declared = list(declared)
    found: list[Requirement] = []
    for requirement in declared:
        without, within = (_applies(requirement, {"extra": name}) for name in ("", extra or ""))
        if not within or (without and extra is not None):
            continue
        if requirement.name == "penstock":
            for other in sorted(requirement.extras):
                found += requirements_of(other, declared)
        else:
            found.append(requirement)
    return found


def _applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


def check_python(wanted: SpecifierSet, found: str) -> CheckResult:
    if wanted.contains(found, prereleases=True):
        return CheckResult("Python", CheckStatus.OK, found, is_required=True)
    text = f"{found} does not fit {wanted}: make an environment with another Python"
    return CheckResult("Python", CheckStatus.BROKEN, text, is_required=True)


def check_dependencies(requirements: Iterable[Requirement], installed: Installed) -> Iterator[CheckResult]:
    """Check the packages without which no job runs. Ray and Arrow have a line each; the rest share one."""
    fitting, problems = 0, []
    for requirement in requirements:
        found = installed(requirement.name)
        fits = found is not None and requirement.specifier.contains(found, prereleases=True)
        problem = _problem(requirement, found)
        if requirement.name in _SHOWN:
            status = CheckStatus.OK if fits else CheckStatus.BROKEN if found else CheckStatus.MISSING
            text = str(found) if fits else f"{problem}: pip install penstock"
            yield CheckResult(_SHOWN[requirement.name], status, text, is_required=True)
        elif fits:
            fitting += 1
        else:
            problems.append(problem)
    status = CheckStatus.BROKEN if problems else CheckStatus.OK
    text = f"{', '.join(problems)}: pip install penstock" if problems else f"{fitting} more packages fit"
    yield CheckResult("dependencies", status, text, is_required=True)


def _problem(requirement: Requirement, found: str | None) -> str:
    wanted = f"{requirement.name}{requirement.specifier}"
    return f"needs {wanted}, which is missing" if found is None else f"needs {wanted}, found {found}"


def check_extra(extra: str, requirements: Iterable[Requirement], installed: Installed) -> CheckResult:
    """Check an optional feature. It is broken if a package does not fit, and missing if one is absent."""
    found = {requirement: installed(requirement.name) for requirement in requirements}
    absent = [requirement for requirement, there in found.items() if there is None]
    unfit = [
        _problem(requirement, there)
        for requirement, there in found.items()
        if there is not None and not requirement.specifier.contains(there, prereleases=True)
    ]
    install = f"pip install 'penstock[{extra}]'"
    if absent:
        rest = "" if len(absent) == len(found) else f"without {', '.join(r.name for r in absent)}: "
        return CheckResult(extra, CheckStatus.MISSING, f"optional: {rest}{install}")
    if unfit:
        return CheckResult(extra, CheckStatus.BROKEN, f"{', '.join(unfit)}: {install}")
    return CheckResult(extra, CheckStatus.OK, ", ".join(f"{r.name} {there}" for r, there in found.items()))


def check_shared_memory(memory: int, free: int) -> CheckResult:
    """Check the memory of Ray's object store, in bytes; `free` is the free space of `/dev/shm`."""
    wanted = min(int(memory * _OBJECT_STORE_SHARE), _OBJECT_STORE_BYTES)
    text = f"{free / 1e9:.1f} GB free in {_SHARED_MEMORY}"
    if free >= wanted:
        return CheckResult("shared memory", CheckStatus.OK, text)
    advice = (
        f"{text}, but Ray wants {wanted / 1e9:.1f} GB: it uses a folder on disk instead, which is slower. "
        f"Delete files there, or give the container more: docker run --shm-size={wanted / 1e9:.0f}g"
    )
    return CheckResult("shared memory", CheckStatus.BROKEN, advice)


def check_rocksdb(package: CheckResult) -> CheckResult:
    """Open a database, write and read, unless the package is missing or unfit."""
    if package.status is not CheckStatus.OK:
        return package
    try:
        with TemporaryDirectory(prefix="penstock-doctor-") as folder:
            database = Database(Path(folder) / "database", _DATABASE_BYTES)
            try:
                database.write([(b"row", b"value")])
                found = database.get(b"row")
            finally:
                database.close()
    except (PenstockError, OSError) as error:
        return CheckResult(package.name, CheckStatus.BROKEN, str(error))
    if found != b"value":
        text = f"{package.text} lost a row that was written: install another version"
        return CheckResult(package.name, CheckStatus.BROKEN, text)
    return CheckResult(package.name, CheckStatus.OK, f"{package.text}, a database works")


def as_plain(results: Iterable[CheckResult]) -> list[Mapping[str, object]]:
    """Return results as values that JSON can hold."""
    return [
        {"name": r.name, "status": r.status.value, "required": r.is_required, "text": r.text} for r in results
    ]
