"""Operators around functions of users.

`function_operator` is their base. `record_functions` needs no key, `keyed_folds` has `reduce` and
`aggregate`. `process` runs process functions, and `process_function` has the bases that users extend.
"""
