"""The `CheckpointCoordinator` of a job: when checkpoints begin, how they complete, why they fail.

It runs in the JobMaster's thread. Read `coordinator` first; the other files know nothing of each other's
work.

- `coordinator`: the four ways: of a trigger, an acknowledgement, a completion, an abort.
- `requests`: requests that wait, which of them may start, their timers and answers.
- `location`: where a snapshot is written, and the folders that users name.
- `plan`: which subtasks take part in a checkpoint.
- `pending_checkpoint`: one checkpoint that runs, and what has come in for it.
- `starts`: the start of a checkpoint, with the part of operator coordinators and master hooks.
- `operator_states`: what a complete checkpoint holds, also of subtasks that have finished.
- `completion`: the metadata and the record are written; completed checkpoints, files that stay, and deletion.
- `failure_manager`: when failed checkpoints fail the job.
- `history`: what people are shown, also after another JobMaster has taken over.

Imports `store`, `log`, `master_hooks`, `operator_coordinators` and what lies below. Nothing else in
`checkpoint` imports it.
"""
