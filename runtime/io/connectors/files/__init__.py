"""`FileSource` and `FileSink`: which files there are, who reads them, and when they become visible.

- `file_source`, `listing`, `file_reader`: lists files, shares them out, reads them with exact positions.
- `file_sink`, `file_sink_writer`, `part_names`: writes files that a checkpoint publishes.

Imports `formats`, `filesystems` and what connectors share.
"""
