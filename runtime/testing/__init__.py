"""Tests without a cluster: harnesses of operators, sources and coordinators, and the simulation of jobs.

All run the same code as a cluster. Time, processes, network and storage are simulated. `penstock.testing` has
the public names. Within the runtime, only models of external systems in `io` import this package.
"""
