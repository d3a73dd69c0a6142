"""Kafka: a source and a sink of topics (`pip install 'penstock[kafka]'`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.kafka.offsets import OffsetsInitializer as OffsetsInitializer
    from penstock.runtime.io.connectors.kafka.sink import KafkaSink as KafkaSink
    from penstock.runtime.io.connectors.kafka.source import KafkaSource as KafkaSource
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
