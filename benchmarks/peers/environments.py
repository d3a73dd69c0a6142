"""Separate environments, in `.venv/peers`, for the systems with which Penstock is compared.

    python benchmarks/peers/environments.py            all of them, as `make peers` does
    python benchmarks/peers/environments.py flink      one

These systems need other versions of their dependencies than Penstock does. An environment that has the right
packages is kept. `mvn` downloads jars of connectors from Maven Central, always including those for Spark.
Spark itself is in Penstock's own environment.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = _HERE.parents[1] / ".venv" / "peers"

#: The packages of each environment; the first one is the peer.
PACKAGES: Final[Mapping[str, Sequence[str]]] = {
    "flink": ["apache-flink==2.3.0"],
    # The benchmarks pass it events from Arrow.
    "bytewax": ["bytewax==0.21.1", "pyarrow", "numpy"],
    "klein": ["ray-klein==0.1.0a2"],
    "quix": ["quixstreams==3.28.1"],
}

#: Jars of connectors, by the environment of their system.
_JARS: Final[Mapping[str, str]] = {
    "flink": "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "spark": "org.apache.spark:spark-sql-kafka-0-10_2.12:{pyspark}",
}

_EVENTS: Final = FOLDER / "flink" / "events.jar"


class MissingPeer(RuntimeError):
    """An environment or its jars could not be made; the message says why."""


def python_of(peer: str) -> Path:
    """The Python of a peer's environment."""
    return FOLDER / peer / "bin" / "python"


def version_of(peer: str) -> str:
    """The version of a peer.

    Example:
        >>> version_of("bytewax")
        '0.21.1'
    """
    return PACKAGES[peer][0].partition("==")[2]


def jars_of(system: str) -> list[Path]:
    """The jars of the connectors of `flink` or `spark`."""
    return sorted((FOLDER / "jars" / system).glob("*.jar"))


def prepare(peer: str) -> Path:
    """Make the environment of a peer, unless it exists with these packages.

    Returns:
        The Python of the environment.

    Raises:
        MissingPeer: Its packages could not be installed, or Flink's tables could not be compiled.
    """
    python, ready = python_of(peer), FOLDER / peer / ".ready"
    wanted = "\n".join(PACKAGES[peer])
    if not ready.exists() or ready.read_text() != wanted:
        print(f"installing {', '.join(PACKAGES[peer])} into {FOLDER / peer} ...", file=sys.stderr, flush=True)
        _run(f"could not make an environment for {peer}", sys.executable, "-m", "venv", str(FOLDER / peer))
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run(f"could not install {peer}: PyPI must be reachable", *pip, *PACKAGES[peer])
        ready.write_text(wanted)
    if peer == "flink":
        _compile_events()
    return python


def prepare_jars(system: str) -> list[Path]:
    """Download the jars of connectors if they are missing.

    Raises:
        MissingPeer: `mvn` is missing, or could not download them.
    """
    folder = FOLDER / "jars" / system
    artifact = _JARS[system].format(pyspark=version("pyspark"))
    ready = folder / ".ready"
    if not ready.exists() or ready.read_text() != artifact:
        if shutil.which("mvn") is None:
            raise MissingPeer(f"{artifact} needs mvn: install Maven, on Debian with apt-get install maven")
        print(f"getting {artifact} into {folder} ...", file=sys.stderr, flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as work:
            pom = Path(work) / "pom.xml"
            pom.write_text(_pom(*artifact.split(":")))
            goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
            command = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), *goal]
            _run(f"could not get {artifact}: Maven Central must be reachable", *command)
        ready.write_text(artifact)
    return jars_of(system)


def _pom(group: str, artifact: str, number: str) -> str:
    dependency = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{number}</version>"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>peers</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies><dependency>{dependency}</dependency></dependencies></project>"
    )


def _compile_events() -> None:
    """Compile the tables that Flink's jobs read (`flink/*.java`) into a jar."""
    sources = sorted((_HERE / "flink").glob("*.java"))
    if _EVENTS.exists() and _EVENTS.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return
    if shutil.which("javac") is None or shutil.which("jar") is None:
        raise MissingPeer("Flink's tables need JDK 17 or newer: on Debian, apt-get install openjdk-17-jdk")
    libraries = next((FOLDER / "flink" / "lib").glob("python*/site-packages/pyflink/lib"))
    with tempfile.TemporaryDirectory() as work:
        classes = Path(work)
        compiler = ["javac", "-proc:none", "--release", "17", "-cp", f"{libraries}/*", "-d", work]
        _run("could not compile Flink's tables", *compiler, *map(str, sources))
        services = classes / "META-INF" / "services"
        services.mkdir(parents=True)
        (services / "org.apache.flink.table.factories.Factory").write_text("EventsTableFactory\n")
        _run("could not pack Flink's tables", "jar", "cf", str(_EVENTS), "-C", work, ".")
    shutil.copy(_EVENTS, libraries)


def _run(failure: str, *command: str) -> None:
    """Run a command.

    Raises:
        MissingPeer: The command failed; the message has the end of its output.
    """
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        end = "\n".join(done.stdout.strip().splitlines()[-8:])
        raise MissingPeer(f"{failure}; {Path(command[0]).name} printed:\n{end}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments and jars; print why some could not be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "peers", nargs="*", default=[*PACKAGES], help=f"any of {', '.join(PACKAGES)}; all by default"
    )
    given = parser.parse_args(arguments)
    failures = []
    for make, name in [(prepare, peer) for peer in given.peers] + [
        (prepare_jars, system) for system in _JARS if system in (*given.peers, "spark")
    ]:
        try:
            make(name)
        except MissingPeer as failure:
            failures.append(str(failure))
    for message in failures:
        print(message, file=sys.stderr)
    print(f"The environments are in {FOLDER}.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
