"""Operator coordinators in checkpoints: `holder` has one with its valve, the other file all of a job.

The valve holds back events between a coordinator's snapshot and the barriers of its subtasks.
"""
