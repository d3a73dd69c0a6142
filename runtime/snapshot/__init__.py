"""Parts of a checkpoint: values, file formats and paths. Nothing here decides.

- `handles`: handles of state, by operator and subtask. `list_state`: the format of a list state.
- `completed_checkpoint`, and `metadata`, its file. `completed_statistics`: how it was taken.
- `checkpoint_record`: checkpoints as people are shown them. `metrics`: what a subtask measures.
- `failure_reason`: why a checkpoint failed. `permit`: allows sinks to commit.
- `paths`: names of all files. `sealed_file`: checksums. `state_files`: writes files of state.
- `subtask_id`, `channel_id`: names that survive a change of parallelism.
- `memory_storage`, `storage_statistics`: a storage for tests, and what a storage counts.

Stored formats have versions: an old snapshot must stay readable. Imports `record`, `errors` and `ports`.
"""
