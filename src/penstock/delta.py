"""Delta Lake: a sink and a source of tables (`pip install 'penstock[delta]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.delta.sink import DeltaSink as DeltaSink
    from penstock.runtime.io.connectors.delta.source import DeltaSource as DeltaSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
