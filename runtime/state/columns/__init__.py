"""State in columns: a table of keys and values as arrays, for operators that work on Arrow batches.

`key_table` finds the slot of each key, `typed_columns` holds values by slot, `column_table` is both together
and packs its changes for a snapshot. `column_changes` merges such blocks.
"""
