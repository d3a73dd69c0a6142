"""Aggregation by key over columns: the functions, and the operators that run them.

- `functions`, `sums`, `count_distinct`: what users name. `vectorized_aggregate`: what they write themselves.
  `column_aggregate` is the base of all.
- `aggregation` reduces batches (`batch_columns`) to one row a key and merges them into the accumulators.
- Operators: `combiner` in front of an exchange, `keyed_aggregate` with and without windows (`panes`),
  `session_aggregate`.
"""
