"""The API of a program: the environment, its streams, and what they share while the graph grows.

- `stream_environment`: where a program begins; builds and runs the graph.
- `stream`, `record_operations`, `data_stream`: records alone; `data_stream` has the public class.
- `keyed_stream`, `windowed_stream`: with keys, with windows; `aggregate` and `window_settings` serve both.
- `graph_builder`: adds operators, and makes their streams, so that no module imports another in a circle.
- `checked_call`: explains calls that don't fit, with the user's line; the options of operators.

Imports the other files of `graph` and what lies below them.
"""
