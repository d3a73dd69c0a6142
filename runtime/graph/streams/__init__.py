"""The API of a program: the environment, its streams, and what they share while the graph grows.

Streams make each other (`key_by` makes a `KeyedStream`, `reduce` a `DataStream`), so these files import each
other. This is the only folder with such a circle.

- `stream_environment`: where a program begins; builds and runs the graph.
- `data_stream`, `keyed_stream`, `windowed_stream`: what can be done with records, with keys, with windows.
- `graph_builder`: how an operator is added. `steps`, `aggregate`, `window_settings`: what users give for it.
- `checked_call`: explains calls that don't fit, with the user's line; the options of operators.

Imports the other files of `graph` and what lies below them.
"""
