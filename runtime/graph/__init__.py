"""What users build: streams, the stream graph, the job graph and the execution graph.

`stream_environment` and the streams collect the user's program, `chaining` turns it into a job graph,
`execution_graph` lays out subtasks and channels. Imports `operators`, `config` and what lies below; never
`network` or `checkpoint`.
"""
