"""Calls of actors that may be silent, and the names of the bridge's actors.

`answers` waits with a deadline, `repeated_call` calls again while Ray can't reach an actor, `actor_names`
says what the bridge's actors are called.

Touches Ray; knows neither Spark nor rows. Imports nothing of the bridge.
"""
