"""Keyed state: key groups, stable hashes, the heap backend and its incremental snapshots.

- Users' states: `keyed_states`, `broadcast_state` and `OperatorListState` are declared (`declared_state`),
  found and restored (`known_states`). Keyed state may expire (`time_to_live`). `state_views` are the views of
  a running function.
- Keys: `stable_hash`, `stable_hash_arrays`, `key_bytes`, `key_groups`.
- Backends: `state_backend` is the base class of the backends on the heap and in RocksDB. `heap_backend` keeps
  a `state_table` for each state.
- Columns: `column_table` is a table for operators on Arrow batches, built on `key_table` and `typed_columns`.
- Timers: `timer_table`.
- The heap's snapshots, explained in `keyed_snapshot`: writes are collected in `dirty_entries`, captured as
  blocks (`captured_rows`), and encoded as a file (`keyed_chunk`). `immutable_values` are taken by reference;
  `own_copy` copies other values.

The stable hash and the assignment of key groups must never change: stored state depends on them. Imports
`snapshot`, `time` and the packages below them.
"""
