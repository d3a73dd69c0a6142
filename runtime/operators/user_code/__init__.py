"""Calls of users' functions: their records, errors and results.

`failure` makes errors that name the user's line. `result_collector` makes batches of results. `only_reads`
decides whether a function may change records. `function_class` handles functions that are given as classes.
The package imports no operator.
"""
