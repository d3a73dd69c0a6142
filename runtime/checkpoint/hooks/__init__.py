"""Master hooks: users' code in the JobMaster that takes part in every checkpoint.

Imports `operators` and what lies below.
"""
