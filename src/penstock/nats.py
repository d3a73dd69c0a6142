"""NATS JetStream: a source (`pip install 'penstock[nats]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.jetstream import JetStreamSource as JetStreamSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
