"""Aggregation by key over columns: the functions, and the operators that run them.

- `functions`, `sums`, `count_distinct`: aggregates that users name. `vectorized_aggregate`: base of users'
  own aggregates. `column_aggregate` is the base of all.
- `aggregation` makes partial results of batches (`batch_columns`), one row a key, and merges them into the
  accumulators.
- Operators: `keyed_aggregate` without windows and its combiner, `window_aggregate` with windows (`panes`),
  `session_aggregate`.
"""
