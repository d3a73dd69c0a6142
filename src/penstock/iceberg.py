"""Iceberg: a sink and a source of tables (`pip install 'penstock[iceberg]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.iceberg.sink import IcebergSink as IcebergSink
    from penstock.runtime.io.connectors.iceberg.source import IcebergSource as IcebergSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
