"""Common parts of the sources of messages: Redis Streams, NATS JetStream, MQTT and webhooks.

- `deserializer`: makes records of messages, also of Kafka's.
- `fetcher`: receives messages in a thread. `reader`: gives them out, and acknowledges them behind
  checkpoints.
- `settings`: checks that several of these sources make.
"""
