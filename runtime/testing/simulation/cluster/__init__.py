"""Where a simulated job runs: processes with subtasks, the network, and JobMasters with the real scheduler.

`control_plane` holds all of it, and says what a job that stands still waits for. Knows no particular job.
Imports `world`.
"""
