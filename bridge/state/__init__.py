"""State of snapshots as DataFrames, and savepoints made of DataFrames: `read_state`, `write_state`.

`state_frames` has the two functions, `state_tasks` is what runs in Spark's Python workers.

Touches storage and Spark. May import `session` and `arrow`.
"""
