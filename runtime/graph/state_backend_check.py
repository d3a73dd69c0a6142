"""Sees, before a job starts, that every operator can keep its state where it is told to."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Final

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.config.state_backends import RocksDB
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec

#: The package that RocksDB comes with.
PACKAGE: Final = "rocksdict"


def check_state_backends(job: JobGraph, config: JobConfig) -> None:
    """Refuse what could not run.

    Raises:
        GraphError: An operator whose state is in columns is to keep it in RocksDB.
        ConfigurationError: An operator needs RocksDB, and its package is not installed.
    """
    on_rocksdb = [
        operator
        for vertex in job.vertices
        for operator in vertex.operators
        if operator.keyed and isinstance(operator.state_backend or config.state_backend, RocksDB)
    ]
    for operator in on_rocksdb:
        if operator.in_columns:
            raise GraphError(_in_columns(operator))
    if on_rocksdb:
        try:
            version(PACKAGE)
        except PackageNotFoundError:
            raise ConfigurationError(_missing_package(on_rocksdb[0].id)) from None


def _missing_package(operator: str) -> str:
    return (
        f"operator {operator!r} keeps its state in RocksDB, and the package {PACKAGE!r} is not installed "
        "here: pip install 'penstock[rocksdb]', here and on every node of the cluster"
    )


def _in_columns(operator: OperatorSpec) -> str:
    where = "" if operator.defined_at is None else f"{operator.defined_at}: "
    return (
        f"{where}operator {operator.id!r}, {operator.name}, keeps its state in columns, which RocksDB can't "
        "hold: give it state_backend=HeapState()"
    )
