"""The Kafka brokers that tests start. As a package, its tests share them; they end with the last of them."""
