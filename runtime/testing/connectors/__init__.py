"""The suite of tests that a source or sink must pass: `SourceTests` and `SinkTests`.

`penstock.testing.connectors` has the public names. A test class describes the world outside of the job in
`make_world`, and inherits the tests. `worlds` has what a world offers. `sink_job` and `source_job` are jobs
whose checkpoints and deaths a test decides; they drive harnesses. These modules need pytest.
"""
