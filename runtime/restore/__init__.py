"""Which subtask gets which state when a job starts from a snapshot, also at another parallelism.

- `state_assignment`: keyed and operator state; names what does not fit.
- `channel_state_assignment`: data that was in flight.
- `finished_subtasks`: subtasks that have finished for good.
- `task_restore`: everything that one subtask is given.

Imports `graph`, `operators`, `state`, `snapshot`; never `checkpoint`.
"""
