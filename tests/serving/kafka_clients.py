"""The clients of tests: the real ones, or those of the model for its address."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from penstock.runtime.io.connectors.kafka.clients import clients_of
from serving.kafka_security import Settings


def consumer(settings: Settings) -> Consumer:
    return clients_of(settings["bootstrap.servers"]).consumer(settings)


def producer(settings: Settings) -> Producer:
    return clients_of(settings["bootstrap.servers"]).producer(settings)


def admin(settings: Settings) -> AdminClient:
    return clients_of(settings["bootstrap.servers"]).admin(settings)
