"""Kafka: `KafkaSource` and `KafkaSink`, over librdkafka (`penstock[kafka]`).

- `source`: the source. `enumerator` finds partitions, and `reader` reads those of a subtask. `fetcher` polls
  the consumer in a thread, `records` decodes, and `offsets` says where to start and stop. `sample` reads the
  records from which a format learns its schema.
- `sink`: the sink. `writers` sends messages, and `transactions` commits and aborts. `transaction_requests`
  are the requests to the brokers.
- `tools`: what the command line does; `saved_state` reads snapshots for it.
- `cluster`: clients with checked settings. `partitions`: the partitions of topics and their offsets.

Imports of the clients are late, so that a job without Kafka needs none of them.
"""
