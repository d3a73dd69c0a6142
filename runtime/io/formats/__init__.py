"""Formats of records: bytes to values and back, for connectors whose records are single values.

- `format`: the protocols `Format`, `Decoder` and `Encoder`. `parts` finds the bad values of a batch.
- `plain`: bytes and text. `json_format`: JSON.
- `json_rows`, `json_columns`, `json_text`: parsers and writer of JSON, also for files.

Imports of third-party libraries are late, so that a job loads only the libraries of its own formats. File
formats are in `runtime/io/connectors/formats/`.
"""
