"""The decision log: numbered records in the checkpoint storage, claimed by conditional writes.

All durable decisions of a job are records here. The format is read by later versions. Imports `snapshot`
only.
"""
