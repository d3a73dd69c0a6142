"""The cluster of a simulated job: processes with subtasks, the network, and real schedulers.

`control_plane` holds all of it, and reports the reason of a standstill. Knows no particular job. Imports
`world`.
"""
