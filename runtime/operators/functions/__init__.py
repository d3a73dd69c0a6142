"""Operators that call users' functions.

`function_operator` is their base. `record_functions` has the operators without keys, `keyed_folds` has
`reduce` and `aggregate`. `process` runs process functions, and `process_function` has the bases that users
extend. `event_time_operator` is the base of operators whose results wait for event time; `time_order` sorts
by event time.
"""
