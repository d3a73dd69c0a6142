"""Aggregation by key over columns: the functions, and the operators that run them.

- `functions`, `sums`, `count_distinct`: ready-made functions. `vectorized_aggregate`: base of users' own
  functions, and their adapters. `column_aggregate`: base of ready-made functions and adapters.
- `aggregation` groups batches (`batch_columns`) into partial results, one row per key, and merges these into
  the accumulators.
- Operators: `keyed_aggregate` without windows, and its combiner; `window_aggregate` with windows (`panes`);
  `session_aggregate`.
"""
