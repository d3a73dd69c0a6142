"""The states of a job: `base` has their base class, the other files the states from `deploying` to `ending`.

Each state answers events with the next state. A state sees the job only through its context.
"""
