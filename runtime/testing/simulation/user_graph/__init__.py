"""The simulation of a user's own graph: `penstock.runtime.testing.simulate`.

Each process gets copies of users' objects, as on a cluster. The world that `output` reads outlives them all.
Imports the other rooms of the simulation, but nothing of its drawn jobs.
"""
