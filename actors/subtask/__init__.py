"""The process of one subtask, and everything that runs in it.

- `subtask_actor`: the Ray actor, a `SubtaskRunner`.
- `attempt`: one attempt of the subtask, in a thread that steps the runtime's `Subtask`.
- `event_loop`: an asyncio event loop in another thread, for users' coroutines.
- `gateway`: sends frames to other subtasks, and reports to the JobMaster.
- `metrics`: publishes counters to Prometheus.

Every process that holds a handle of a subtask loads `subtask_actor`. So that module imports `attempt` only
when the actor starts. May import `shared`.
"""
