"""The built-in sources and sinks. `penstock.connectors` has their public names.

- `files/`: `FileSource` and `FileSink`.
- `formats/`: reads records from bytes and writes them: text, JSON lines, CSV, Parquet and Avro.
- `filesystem`: the port to files. `local_files`, `object_files`: its two implementations.
- `messages/`: common parts of the sources of messages, which are `redis_streams`, `jetstream`, `mqtt` and
  `webhook`. `kafka/`: Kafka's topics. `http_sink`: sends records as HTTP requests.
- `generator_source`: generated records. `collect_sink`: rows that are collected in the program, previewed or
  dropped.
- `errors`, `arrow_batches`: parts that several connectors share.

`source` and `sinks` of `penstock.runtime.operators` describe the interfaces for your own sources and sinks.
"""
