"""One subtask: a step function over its mailbox, input gate, operator chain and outputs.

`subtask` steps, `build` assembles, `task_checkpoints` takes checkpoints between two steps. Runs in one
thread. Imports `barrier`, `checkpoint`, `network` and what lies below; never `job`.
"""
