"""The graph of a job as a picture: SVG that needs no network, no script and no other program.

- `layers`: puts vertices into layers, and routes long edges through those between.
- `ordering`: orders each layer so that few edges cross.
- `placement`: gives every vertex its place from left to right.
- `layout`: all of that, and the curves of the edges.
- `svg`: draws a `GraphInfo`; `page` puts it into the output of a notebook's cell.

Imports `graph_info` and `describe`.
"""
