"""The cluster of a simulated job: processes with subtasks, the network, and real schedulers.

`control_plane` holds all of it, and says what a job that stands still waits for. Knows no particular job.
Imports `world`.
"""
