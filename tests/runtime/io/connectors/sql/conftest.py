"""A PostgreSQL that all tests of this folder share; each test has a database of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_folder import memory_folder

_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

from serving.postgres import PostgresServer, postgres_server  # noqa: E402 (the path comes first)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as started:
        yield started


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory."""
    with memory_folder() as folder:
        yield folder
