"""The parts of an operator that live in the JobMaster: `OperatorCoordinator` and `MasterHook`.

Users write both; `checkpoint.operator_coordinators` and `checkpoint.hooks` run them.
"""
