"""Common parts of the sources of messages: Redis Streams, NATS JetStream, MQTT and webhooks.

- `deserializer`: makes records from messages, including Kafka's.
- `fetcher`: receives messages in a thread. `reader`: emits their records, and acknowledges the messages when
  a completed checkpoint covers them.
- `settings`: checks that several of these sources make.
"""
