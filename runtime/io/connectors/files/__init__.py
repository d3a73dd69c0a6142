"""`FileSource` and `FileSink`: finding, sharing out, reading, writing and publishing files.

- `file_source`, `file_reader`: lists files, shares them out, and reads them with exact positions.
- `file_sink`, `file_sink_writer`: writes files that a checkpoint publishes.
"""
