"""Operator coordinators: an operator's part in the JobMaster, and the valve that orders its events.

The valve keeps events and checkpoints in one order. Imports `operators` and what lies below.
"""
