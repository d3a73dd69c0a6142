"""Kafka: `KafkaSource` and `KafkaSink`, over librdkafka (`penstock[kafka]`).

- `source`: the source. `enumerator` finds its partitions, and `reader` reads those of a subtask. `fetcher` polls
  the consumer in a thread, `records` decodes, and `offsets` says where to start and stop.
- `sink`: the sink. `writers` sends messages, and `transactions` commits and aborts. The requests to the brokers
  are in `transaction_requests`.
- `cluster`: clients with checked settings.

Imports of the clients are late, so that a job without Kafka needs none of them.
"""
