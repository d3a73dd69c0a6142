"""The built-in sources and sinks. `penstock.connectors` has their public names.

- `files/`: `FileSource` and `FileSink`.
- `formats/`: reads records from bytes and writes them: text, JSON lines, CSV and Parquet.
- `filesystem`: the port to files. `local_files`, `object_files`: its two implementations.
- `messages/`: what sources of messages share. `redis_streams`, `jetstream`, `mqtt` and `webhook` are these
  sources. `kafka/`: topics. `http_sink`: records as requests.
- `generator_source`: generated records. `collect_sink`: rows that are collected in the program, previewed or
  dropped.
- `errors`, `arrow_batches`: parts that several connectors share.

`source` and `sinks` of `penstock.runtime.operators` describe the interfaces for your own sources and sinks.
"""
