"""The API of a program: the environment and its streams, with the code that they share.

- `stream_environment`: the start of a program; builds and runs the graph.
- `stream`: the base of all streams; `data_stream`: the public class. `record_operations`, `async_operations`,
  `keyed_choices` and `join_operations` have some of its methods.
- `keyed_stream`, `windowed_stream`, `pattern_stream`: streams with keys, with windows, and with a pattern.
  The first two share `aggregate` and `window_settings`. `connected_streams`: two streams for one operator.
- `keyed_joins`: the joins of a keyed stream. `joins`, `asof_joins` and `lookups` add the operators of joins.
- `graph_builder`: adds operators, and makes their streams, which avoids circular imports.
- `checked_call`: explains invalid calls, with the user's line; the options of operators. `given_function`:
  checks users' functions.

Imports the other files of `graph` and lower packages.
"""
