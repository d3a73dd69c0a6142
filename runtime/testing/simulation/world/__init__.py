"""The shared parts of a simulated run: chance, time, the agenda, failures, storage and the trace.

`world` combines the others. This package runs no job and no process, and imports only lower floors.
"""
