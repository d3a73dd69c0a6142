"""The built-in sources and sinks. `penstock.connectors` has their public names.

- `files/`: `FileSource` and `FileSink`.
- `formats/`: text, JSON lines, CSV and Parquet: how records are read from bytes and written to them.
- `filesystem`: the port to where bytes are. `local_files`, `object_files`: its two implementations.
- `generator_source`: records that are made up. `collect_sink`: rows for the program, for a quick look, or
  dropped.
- `errors`, `arrow_batches`: what several connectors share.

`penstock.runtime.operators.source` says what a source or sink of your own needs.
"""
