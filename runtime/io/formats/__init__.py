"""Formats that decode bytes to records and encode records to bytes, for connectors with a record per value.

- `format`: the protocols `Format`, `Decoder` and `Encoder`. `parts` finds the bad values of a batch.
- `plain`: bytes and text. `json_format`, `json_schema`, `avro`, `protobuf`: one format each. The format of
  CSV lines is with the readers of CSV files.
- `json_rows`, `json_columns`, `json_text`: parsers and writer of JSON, for single values and for files.
- `avro_schema`: Avro's types as columns. `avro_resolution`: resolves a writer's schema against a reader's.
  `avro_encoder` writes records.
- `json_layout`: a faster parser of JSON objects with one layout. `json_schema_columns`: a JSON Schema as
  columns.
- `json_learning`: the schema of JSON, learned from a sample. `protobuf_rows`: rows of recursive messages.
- `registry`: a client of the schema registry. `registered`: values that begin with the id of a schema.
- `varints`: integers of Protobuf and Avro. `rows`: rows of batches.
- `settings`: checks, and imports of libraries.

Imports of third-party libraries are late, so that a job loads only the libraries of its own formats. File
formats are in `runtime/io/connectors/file_formats/`.
"""
