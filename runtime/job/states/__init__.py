"""The states of a job: `base` is their base, the other files have them from `deploying` to `ending`.

Each state answers events with the next state. A state sees the job only through its context.
"""
