"""The shared parts of a simulated run: chance, time, the agenda, failures, storage and the trace.

`world` puts the others together. Knows no job and no process; imports the floors below `testing` only.
"""
