"""The built-in sources and sinks. Their public names are in `penstock.runtime`.

- `files/`: `FileSource` and `FileSink`. Uses `formats/` and `filesystems/`.
- `formats/`: text, JSON lines, CSV and Parquet: how records are read from bytes and written to them.
- `filesystems/`: where bytes are: local disks and object stores.
- `generator_source`, `collect_sink`, `discard_sink`: records that are made up, kept in memory, or dropped.
- `errors`, `bad_records`, `arrow_rows`: what several connectors share.

`penstock.runtime.operators.protocols` says what a source or sink of your own needs.
"""
