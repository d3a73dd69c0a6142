"""The cluster of a simulated job: processes with subtasks, the network, and real schedulers.

`control_plane` holds all these parts, and reports the reason for a standstill. The package knows no
particular job, and imports `world`.
"""
