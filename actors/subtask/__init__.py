"""The process of one subtask, and everything that runs in it.

- `subtask_actor`: the Ray actor that takes the role. `attempt`: one run of its subtask.
- `task_thread`, or `task_on_loop`: steps the runtime's `Subtask`.
- `remote_channels` sends to other subtasks, `master_link` reports to the JobMaster; `task_gateway` is what
  the subtask sees of both.
- `metrics`: counters for Prometheus. `traces`: what users' code has left here, and whether another job may
  use the process.

`runtime/execution` decides which calls the actor takes, when deliveries are answered, and when its lease is
over.

`subtask_actor` alone is loaded wherever a handle of a subtask goes, so it imports the rest only when it
starts. May import `shared`.
"""
