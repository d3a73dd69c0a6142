"""Graphs of a job: streams, the stream graph, the job graph and the execution graph.

- `streams/`: the environment and the streams, which record the user's program.
- `stream_graph`: the program as it was written, with the ids of its operators.
- `chaining`: turns the stream graph into a `job_graph`.
- `push_down`: sources, filters and selections leave out columns and rows that no later step reads.
- `graph_info`: the job graph as values and as text; `drawing` renders it as SVG.
- `execution_graph`: lays out subtasks and channels; `aligned_edges`: where barriers never overtake.
- `executor`: the port to the system that runs a job, and a program's handle of a running job.
- `collection_source`: a source of values of the program.

Imports `operators`, `config` and lower packages; never `network` or `checkpoint`.
"""
