"""Kafka: `KafkaSource` and `KafkaSink`, over librdkafka (`penstock[kafka]`)."""
