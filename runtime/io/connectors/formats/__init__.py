"""Formats of files: how records are read from bytes and written to them.

- Parts of files: `splitting` cuts and opens them, `line_blocks` reads whole lines, `lines` is common to
  formats with one record a line.
- Readers: `json_reader` and text in `lines` give rows; `json_column_reader` and `parquet_reader` give
  columns. `csv_reader` gives both. `csv_dialect` says how CSV is written and has the types of its texts,
  `csv_columns` makes dicts and Arrow batches of its rows.
- Writers: `encoders` (CSV, JSON lines), `parquet_encoder`.
"""
