"""HTTP: a source of requests, and a sink that sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.http_sink import HttpSink as HttpSink
    from penstock.runtime.io.connectors.webhook import WebhookSource as WebhookSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
