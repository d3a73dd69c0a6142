"""Who gets which state when a job starts from a snapshot.

Assigns operator state, keyed state and channel state to subtasks, also at another parallelism, and names
what does not fit. Imports `graph`, `operators`, `state`, `snapshot`; never `checkpoint`.
"""
