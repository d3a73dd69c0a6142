"""Operator coordinators in checkpoints: one with its valve (`holder`), and all of a job.

The valve holds back events between a coordinator's snapshot and the barriers of its subtasks.
"""
