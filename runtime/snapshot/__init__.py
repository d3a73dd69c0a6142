"""Parts of a checkpoint: values, file formats and paths. Nothing here decides.

- `handles`: handles of state, by operator and subtask. `ids`: names of subtasks, exchanges and channels.
- `completed_checkpoint`: what a job and its subtasks start from, and what allows sinks to commit.
- `metadata`: the files of a checkpoint. `sealed_file`: checksums. `paths`: names of all files.
- `checkpoint_record`: what a subtask measures, and checkpoints as people are shown them.
- `storage`: storages in memory and on disks, and what a storage counts.

Stored formats have versions: an old snapshot must stay readable. Imports `record`, `errors` and `ports`.
"""
