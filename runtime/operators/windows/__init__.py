"""Windows with triggers: assigners of any kind, triggers, evictors, lateness.

Files of this room import from the operators beside it and from the floors below, never the other way round.
"""
