"""Joins of two streams.

- `interval_join`: which rows match, how long they are kept, and what the output's watermark waits for.
- `column_names`, `output_rows`: the columns or fields of the output.
- `column_interval_join`, `row_interval_join`: the operators over Arrow batches and over rows.
"""
