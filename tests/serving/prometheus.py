"""A real Prometheus: the one of this machine, or the one that `make prometheus` has unpacked in `.venv`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_UNPACKED = Path(sys.prefix) / "prometheus" / "usr" / "bin"


def program(name: str = "prometheus") -> str | None:
    """The path of `prometheus` or `promtool`; `None` where there is none."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", os.defpath), str(_UNPACKED))))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `promtool` to its end; what it said is in `stdout`."""
    tool = program("promtool")
    assert tool is not None
    return subprocess.run(
        [tool, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[str]:
    """A server on loopback that scrapes a target; its address.

    A scrape may take as long as the interval. With three seconds, those of a busy machine failed.
    """
    server = program()
    assert server is not None
    config = folder / "prometheus.yml"
    scrape = {"job_name": "ray", "scrape_interval": "5s", "static_configs": [{"targets": [target]}]}
    config.write_text(json.dumps({"scrape_configs": [scrape]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    places = (f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}")
    process = subprocess.Popen(
        [server, *places, f"--web.listen-address={address}"],
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        yield address
    finally:
        process.terminate()
        process.wait(30)


def answers(address: str, query: str) -> list[dict[str, Any]]:
    """The samples that a query finds; none while the server starts.

    Raises:
        AssertionError: The server refuses the query.
    """
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return list(json.loads(answer.read())["data"]["result"])
    except urllib.error.HTTPError as error:
        refused = error.read().decode()
        if error.code == 503:  # it starts
            return []
        raise AssertionError(f"{query}: {refused}") from error
    except (ConnectionError, urllib.error.URLError):
        return []
