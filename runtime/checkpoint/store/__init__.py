"""Completed checkpoints: which are kept, which files they share, how a snapshot is opened again.

- `completed_store`: the completed checkpoints of a job, and the files that nothing names any more.
- `retention`: which checkpoints are kept, while the job runs and after its end.
- `recovery`: what a new attempt starts from.
- `opened_snapshot`: finds the snapshot that a user names.

Only files that no kept checkpoint names are given up for deletion. Imports `log`.
"""
