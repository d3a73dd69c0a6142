"""Results of jobs as Arrow blocks in Ray's object store, for whichever engine reads them.

`block_results` is the sink. `block_writer` writes the blocks of a subtask, and `open_block` gathers them.
`block_holder` is the actor that owns them. `bounded_results` runs or finds the job whose results are wanted.

Touches Ray; knows neither Spark's session nor Ray Data. May import `arrow`.
"""
