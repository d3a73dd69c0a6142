"""Operators around functions of the user.

`function_operator` is their base. `record_functions`: `map`, `filter`, `flat_map`, `split`, `reduce`.
`map_batches` and `process` have an operator of their own. `process_function` holds the bases that users
extend.
"""
