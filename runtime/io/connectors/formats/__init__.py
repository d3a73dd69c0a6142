"""Formats of files: how records are read from bytes and written to them.

- `json_reader`, `csv_reader`, `parquet_reader`, `text_reader`: one format each; `lines` is common to those of
  lines.
- `json_encoder`, `csv_encoder`, `parquet_encoder`: the formats of sinks; `encoder` is what they share.
- `splitting`, `opening`, `compression`, `line_blocks`, `line_cursor`: parts of files and positions in them.
- `one_schema`: the columns that all files of a source of Arrow batches have.

Imports `filesystems` and what connectors share.
"""
