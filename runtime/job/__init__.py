"""One job: its state machine, restart strategies, regions and ledger; runs in the JobMaster.

`scheduler` drives the states of `states/`. Deploying and cancelling go through the ports of `context`.
Imports `checkpoint` and what lies below; never `task`.
"""
