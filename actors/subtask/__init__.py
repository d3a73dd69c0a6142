"""The process of one subtask, and everything that runs in it.

- `subtask_actor`: the Ray actor, a `SubtaskRunner`.
- `attempt`: one run of its subtask, in a thread that steps the runtime's `Subtask`.
- `gateway`: frames to other subtasks, reports to the JobMaster.
- `metrics`: counters for Prometheus.

`subtask_actor` alone is loaded wherever a handle of a subtask goes. So it imports `attempt` only when it
starts. May import `shared`.
"""
