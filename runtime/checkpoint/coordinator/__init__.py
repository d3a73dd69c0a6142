"""The `CheckpointCoordinator` of a job: when checkpoints begin, how they complete, why they fail.

One object runs in the JobMaster's thread. It imports the other folders of `checkpoint`; only `store`,
`log`, `hooks` and `operator_coordinators` may know its values.
"""
