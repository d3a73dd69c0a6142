"""Completed checkpoints: which are kept, which files they share, how a snapshot is opened again.

- `completed_store`: the completed checkpoints of a job, which are kept, and the files that nothing names.
- `recovery`: what a new attempt starts from, and which folders metadata may name.
- `opened_snapshot`: finds the snapshot that a user names.

Only files that no kept checkpoint names are given up for deletion. Imports `log`.
"""
