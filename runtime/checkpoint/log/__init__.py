"""The decision log: numbered records in the checkpoint storage, claimed by conditional writes.

All durable decisions of a job are records here. Later versions read the format: change it only with a
version.

- `decision_log`: the writer, and why the log is right. `claims`: what it returns.
- `reader`: replays the log, from where `hint` says. `view`: what its records come to.
- `records`: the records and their format. `slots`: claims one slot.

Imports `snapshot` only.
"""
