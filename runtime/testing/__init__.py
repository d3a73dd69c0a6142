"""Tests without a cluster: the operator harness, and the simulation of whole jobs.

`penstock.testing` has the public names. `simulate` runs a user's job under a thousand
courses of events. `OperatorHarness` and `SourceHarness` drive one operator step by step. All run the code
that runs on a cluster; time, processes, network and storage are simulated. Nothing in the runtime imports
this package.
"""
