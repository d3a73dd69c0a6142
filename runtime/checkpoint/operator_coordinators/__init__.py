"""Operator coordinators: an operator's part in the JobMaster, and the valve that orders its events.

- `operator_coordinators`: all of a job, as the checkpoint coordinator sees them.
- `holder`: one coordinator together with its valve.
- `operator_event_valve`: holds events back between a coordinator's snapshot and the barriers.

Imports `operators` and what lies below.
"""
