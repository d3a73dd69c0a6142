"""Completed checkpoints: which are kept, which files they share, how a snapshot is opened again.

Deletes only files that no kept checkpoint names. Imports `log`.
"""
