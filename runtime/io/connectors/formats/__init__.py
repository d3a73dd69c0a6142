"""Formats of files: how records are read from bytes and written to them.

- Parts of files: `splitting` cuts and opens them, `line_blocks` reads whole lines, `lines` is common to
  formats with one record a line.
- Readers: `json_reader`, `csv_reader` and text in `lines` give rows; `json_column_reader`,
  `csv_column_reader` and `parquet_reader` give columns. `csv_columns` has the types of CSV.
- Writers: `encoders` (CSV, JSON lines), `parquet_encoder`.

Imports `filesystems` and what connectors share.
"""
