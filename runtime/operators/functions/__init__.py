"""Operators that call users' functions.

`function_operator` is their base. `record_functions` has `map`, `filter` and similar operators;
`fused_loop` runs neighbouring ones together. `keyed_folds` has `reduce` and `aggregate`. `process` runs
process functions, and `process_function` has the bases that users extend; `co_process` and
`co_process_function` do so for connected streams. `async_map` calls coroutine functions.
`event_time_operator` is the base of operators whose results wait for event time; `time_order` sorts by
event time.
"""
