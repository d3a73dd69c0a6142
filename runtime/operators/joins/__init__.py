"""Joins of two streams, and lookups.

- `interval_join`, `asof_join`: the rules of time: which rows match, and how long they are kept.
- `column_names`, `output_rows`: the columns or fields of the output.
- `column_...`, `row_...`: the operators over Arrow batches and over rows.
- `lookup_join`, `async_lookup`, `column_lookup`: records that a function or a table returns for a key.
"""
