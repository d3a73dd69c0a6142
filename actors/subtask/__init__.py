"""The process of one subtask, and everything that runs in it.

`subtask_actor` is the Ray actor; `attempt` is one run of its subtask. `task_thread` (or `task_on_loop`) steps
the runtime's `Subtask`. `deliveries` takes frames of other subtasks, `remote_channels` sends to them,
`master_link` reports to the JobMaster, and `task_gateway` is what the subtask sees of the three. `lease` ends
a process that no JobMaster needs any more.

`subtask_actor` alone is loaded wherever a handle of a subtask goes, so it imports the rest only when it
starts. May import `shared`.
"""
