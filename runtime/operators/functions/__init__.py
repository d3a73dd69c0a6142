"""Operators around functions of the user: `map`, `filter`, `map_batches`, `process`, `reduce` and others.

`function_operator` and `keyed_function_operator` have what they share. `process_function` is what
users write.
"""
