"""A subtask's side of a checkpoint: the `SubtaskCheckpointCoordinator` and the snapshot of its operators.

The synchronous half runs in the task's thread, the asynchronous half beside it. Imports `channel_state`.
"""
