"""Jobs on Apache Kafka. As a package, its tests share a broker, which ends with the last of them."""
