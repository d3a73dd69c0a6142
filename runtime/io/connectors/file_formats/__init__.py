"""Formats of files: how records are read from bytes and written to them.

- Splits: `splitting` cuts files and opens them, `line_blocks` reads whole lines.
- `value_files` chooses how files hold the values of a format of `runtime/io/formats/`. `value_lines`,
  `delimited_values` and `avro_files` read them, `value_encoders` writes them.
- Readers: `lines` returns rows of text; `json_column_reader` returns columns. `csv_reader` and
  `parquet_reader` return either. `csv_dialect` defines the syntax and the types of CSV, `csv_columns`
  converts CSV rows to dicts and Arrow batches.
- `csv_lines`: single CSV rows, a format of `runtime/io/formats/`.
- Writers: `encoders` (CSV), `parquet_encoder`.
"""
