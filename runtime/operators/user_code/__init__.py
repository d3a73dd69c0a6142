"""Calls of users' functions: their records, errors and results.

`failure` makes errors that name the user's line. `result_collector` makes batches of results. `only_reads`
decides whether a function may change records. `function_class` has classes of functions. Imports no operator.
"""
