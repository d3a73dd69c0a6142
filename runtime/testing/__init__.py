"""Tests without a cluster: the operator harness and the deterministic simulation of whole jobs.

Runs the real operators, subtasks, coordinator and scheduler with simulated time, processes, network and
storage. Nothing in the runtime imports it.
"""
