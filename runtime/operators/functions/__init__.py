"""Operators around functions of the user.

`function_operator` has what they share. `record_functions`: `map`, `filter`, `flat_map`, `split`, `reduce`.
`map_batches` and `process` have an operator of their own. `process_function` is what users write.
"""
