"""The states of a job: `base` has their base class, the other files the states from `deploying` to `ending`.

Each state handles events, and enters the next state. A state sees the job only through its context.
"""
