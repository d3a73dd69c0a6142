"""The built-in sources and sinks. `penstock.connectors` has their public names.

- `files/`: `FileSource` and `FileSink`.
- `file_formats/`: reads and writes the formats of files: text, JSON lines, CSV, Parquet, Avro and others.
- `filesystem`: the port to files. `local_files`, `object_files`: its two implementations.
  `odd_keys`: objects that only Arrow reads.
- `messages/`: common parts of the sources of messages, which are `redis_streams`, `jetstream`, `mqtt`,
  `webhook` and Kafka's. `kafka/`: Kafka's topics. `http_sink`: sends records as HTTP requests.
- `delta/`: Delta tables.
- `generator_source`: generated records. `collect_sink`: rows that are collected in the program, previewed or
  dropped.
- `delta/`, `iceberg/`: tables of Delta Lake and Iceberg. `tables/`: common parts of both.
- `errors`, `arrow_batches`, `daemon_threads`: parts that several connectors share.

`source` and `sinks` of `penstock.runtime.operators` describe the interfaces for your own sources and sinks.
"""
