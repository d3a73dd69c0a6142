"""Operators around `pyarrow.compute` expressions: `filter`, `select`, `with_columns`, `split`.

`expression_operators` runs `expressions` on Arrow batches and `row_expressions` on rows that are dicts.
Results are the same.
"""
