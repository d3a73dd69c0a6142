"""Formats of files: how records are read from bytes and written to them.

- Parts of files: `splitting` cuts and opens them, `line_blocks` reads whole lines.
- Readers: `lines` gives rows of text and JSON; `json_column_reader` and `parquet_reader` give columns.
  `csv_reader` gives both. `csv_dialect` defines the syntax and the types of CSV, `csv_columns` makes dicts
  and Arrow batches of CSV rows.
- Writers: `encoders` (CSV, JSON lines), `parquet_encoder`.
"""
