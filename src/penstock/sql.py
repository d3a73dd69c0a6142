"""PostgreSQL and SQLite: a sink, sources and lookups (`pip install 'penstock[sql]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.sql.cdc.source import PostgresCdcSource as PostgresCdcSource
    from penstock.runtime.io.connectors.sql.lookup import SqlLookup as SqlLookup
    from penstock.runtime.io.connectors.sql.sink import SqlSink as SqlSink
    from penstock.runtime.io.connectors.sql.source import SqlSource as SqlSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
