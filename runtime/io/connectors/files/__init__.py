"""`FileSource` and `FileSink`: find, distribute, read, write and publish files.

- `file_source` and `file_reader` list files, distribute them, and read them with exact positions.
- `file_sink`, `file_sink_writer` and `folders` write files that a checkpoint publishes.
"""
