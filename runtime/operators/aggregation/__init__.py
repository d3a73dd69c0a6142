"""Aggregation by key over columns: the functions, and the operators that run them.

- `functions`, `sums`, `count_distinct`: ready-made functions. `vectorized_aggregate`: base of users' own
  functions. `column_aggregate`: base of all functions.
- `aggregation` groups batches (`batch_columns`) into partial results, one row per key, and merges these into
  the accumulators.
- Operators: `keyed_aggregate` without windows, and its combiner; `window_aggregate` with windows (`panes`);
  `session_aggregate`.
"""
