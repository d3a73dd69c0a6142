"""The process of one subtask, and everything that runs in it.

- `subtask_actor`: the Ray actor that takes the role.
- `attempt`: one run of its subtask, in a thread that steps the runtime's `Subtask`.
- `remote_channels` sends to other subtasks, `master_link` reports to the JobMaster.
- `metrics`: counters for Prometheus.

`subtask_actor` alone is loaded wherever a handle of a subtask goes. So it imports the rest only when it
starts. May import `shared`.
"""
