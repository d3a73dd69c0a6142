"""The state of one operator in one subtask: keyed, lists, and raw.

`keyed_state_requests` gives a function its keyed state, `operator_state` its lists. `state_sweep` deletes
what has expired. The backends are in `runtime.state`.
"""
