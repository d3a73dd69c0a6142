"""State in columns: a table of keys and values as arrays, for operators that work on Arrow batches.

`key_table` finds the slot of each key, `growing_column` holds one column by slot, `column_table` is both
together. Its changes reach a snapshot as `column_blocks`.
"""
