"""Channel state: data in flight that unaligned checkpoints capture, and its file.

Imports `network` and what lies below.
"""
