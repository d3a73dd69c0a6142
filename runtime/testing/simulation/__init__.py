"""Deterministic simulation of whole jobs in one thread, with a seeded scheduler and a virtual clock.

A seed determines everything: the conditions (slow channels, starved processes), the faults, the user's
requests, and the order of all events. The same seed gives the same run on every machine.

The simulation runs the real scheduler with its states, checkpoint coordinator, source coordinators with their
valves, and decision log. It also runs the real subtasks with their gates, barrier handlers, operators, state
backends and codecs. It simulates time, processes, the network, the storage, background work, and the external
systems behind sinks and master hooks.

The packages, from the inside out:

* `world`: randomness, time, the agenda, failures, storage, and the trace of the run
* `cluster`: processes with real subtasks, the network between them, JobMasters with the real scheduler
* `injection`: makes planned faults and users' requests happen
* `simulated_run`: executes the moves of a run
* `user_graph`: `penstock.testing.simulate`, which runs users' jobs

The project's tests run their own jobs in it: `tests/simulated_jobs`.
"""
