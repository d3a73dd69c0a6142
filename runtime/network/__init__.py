"""Channels between subtasks: input gates, result partitions, credits, partitioners.

Elements get their sequence numbers here and are put back in order here. `channel_state` is the port through
which elements in flight become part of a checkpoint. Imports `graph` and what lies below; never `barrier`.
"""
