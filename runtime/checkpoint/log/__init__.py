"""The decision log: all durable decisions of a job as numbered records, claimed by conditional writes.

Later releases read the format: a change needs a new version number. Imports no other part of
`checkpoint`.

- `decision_log`: the writer, and the proof of its correctness.
- `reader`: replays the log.
- `records`: the records, their format, and the state that results from them.
- `slots`: claims one slot.
"""
