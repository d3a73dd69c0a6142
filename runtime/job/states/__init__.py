"""The states of a job, one class a file.

Each state answers events with the next state. A state sees the job only through its context.
"""
