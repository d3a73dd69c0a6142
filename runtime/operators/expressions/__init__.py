"""Operators around `pyarrow.compute` expressions: `filter`, `select`, `with_columns`, `split`.

Results are the same on Arrow batches and on dict rows.
"""
