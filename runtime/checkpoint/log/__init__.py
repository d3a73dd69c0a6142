"""The decision log: numbered records in the checkpoint storage, claimed by conditional writes.

All durable decisions of a job are records here. Later versions read the format: change it only with a
version.

- `decision_log`: the writer, and why the log is right.
- `reader`: replays the log, from where its hint says.
- `records`: the records, their format, and what they come to.
- `slots`: claims one slot, and what comes of it.

Imports `snapshot` only.
"""
