"""Keyed state: key groups, stable hashes, the heap backend and its incremental snapshots.

- Users: `keyed_states` and `operator_list_state` are declared (`declared_state`), found and restored
  (`known_states`), and may expire (`time_to_live`).
- Keys: `stable_hash`, `stable_hash_arrays`, `key_bytes`, `key_groups`.
- The heap: `state_backend` is the port, `heap_backend` implements it with a `state_table` for each state and
  the views in `heap_states` and `ttl_states`. `columns/` has tables in columns.
- Its snapshots: `changes` collects what has changed, `keyed_blocks` holds it, `keyed_chunk` is the file,
  `keyed_snapshot` says which files a checkpoint names. `fixed_values`, `own_copy`: values that can't change.

The stable hash and the assignment of key groups must never change: stored state depends on them. Imports
`snapshot` and what lies below.
"""
