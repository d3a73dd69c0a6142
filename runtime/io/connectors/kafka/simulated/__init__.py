"""A model of a Kafka broker in memory, and clients for it that look like those of the real libraries.

- `broker`: topics, transactions and groups, as the brokers hold them. `log` is one partition of a topic,
  and `leaders` says which broker leads it.
- `consumer`, `producer`, `admin`, `requests`: the clients. `connection` decides what happens to their calls.
- `kafka_world`: `KafkaWorld`, the broker of a simulation with its faults. `threads` are those of the
  connector.

`tests/brokers` runs the same tests against this model and against real brokers. Only this folder of the
connectors imports `penstock.runtime.testing`.
"""
