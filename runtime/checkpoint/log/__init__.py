"""The decision log: all durable decisions of a job as numbered records, claimed by conditional writes.

Later versions read the format: a change needs a new version. Imports `snapshot` only.

- `decision_log`: the writer, and the proof that the log is right.
- `reader`: replays the log.
- `records`: the records, their format, and the state that they add up to.
- `slots`: claims one slot.
"""
