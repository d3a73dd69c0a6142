"""Everything that a user can set: frozen dataclasses whose fields are checked when they are made.

Settings of checkpoints, restarts and whole jobs, and the checks that they share. A setting names its unit
and its allowed values in its error. Imports `record` and the ground (`errors`).
"""
