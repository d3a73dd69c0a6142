"""What users build: streams, the stream graph, the job graph and the execution graph.

- `streams/`: the environment and the streams that collect the user's program.
- `stream_graph`: the program as it was written. `operator_ids` names its operators.
- `chaining`: turns the stream graph into a `job_graph`; `describe` draws it as text, `drawing/` as SVG.
- `execution_graph`: lays out subtasks and channels; `rescaling` changes their number.
- `executor`, `job_handle`: the port to what runs a job, and what a program holds of a running job.

Imports `operators`, `config` and what lies below; never `network` or `checkpoint`.
"""
