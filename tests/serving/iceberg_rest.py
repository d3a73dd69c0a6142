"""The REST catalog of Apache Iceberg's own tests, from the jars of `make table-jars`; it starts in 2 s."""

from __future__ import annotations

import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from serving.apache_kafka import java
from serving.kafka import free_ports
from serving.process import Server

_JARS: Final = Path(sys.prefix) / "catalog_jars"
#: Jars of PySpark: Hadoop writes the metadata of tables, and Log4j the log.
_OF_SPARK: Final = ("hadoop-client-*", "jcl-over-slf4j-*", "log4j-*", "zstd-jni-*")
_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

#: A token that the clients send; the server takes any.
TOKEN: Final = "token-of-the-catalog"


def program() -> str | None:
    """The class path of the server; `None` without it or without a Java."""
    if not (_JARS / ".ready").exists() or java() is None or (spark := find_spec("pyspark")) is None:
        return None
    assert spark.origin is not None
    jars = Path(spark.origin).parent / "jars"
    found = [str(jar) for pattern in _OF_SPARK for jar in sorted(jars.glob(f"{pattern}.jar"))]
    return ":".join([f"{_JARS}/*", *found])


class CatalogServer(Server):
    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """Properties of the catalog for pyiceberg."""
        return {"type": "rest", "uri": self.uri, "token": TOKEN}


@contextmanager
def catalog_server(folder: Path) -> Iterator[CatalogServer]:
    """A server with a catalog in a folder, which a restart keeps."""
    found, classes = java(), program()
    assert found is not None
    assert classes is not None, "there is no REST catalog here; `make table-jars` fetches it into .venv"
    (port,) = free_ports(1)
    settings = {
        # Clients beside each other would find the database locked.
        "URI": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=60000",
        "CLIENTS": "1",
        "WAREHOUSE": f"file://{folder}/warehouse",
        "REST_PORT": str(port),
    }
    command = [found, *_JVM, "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    words = ["env", *(f"CATALOG_{name}={value}" for name, value in settings.items()), *command]
    server = CatalogServer(words, port, folder / "catalog.log", lambda: _answers(port))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def _answers(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/config", timeout=60) as answer:
        return bool(answer.status == 200)
