"""What a checkpoint is made of: values, file formats and paths.

Handles of state, metadata, checkpoint records and statistics, the commit permit, names of subtasks and
channels. Nothing here decides; who takes part in a checkpoint is decided in `checkpoint`. Stored formats
are versioned: an old snapshot must stay readable. Imports `record` and the ground (`errors`, `ports`).
"""
