"""Results of jobs as Arrow blocks in Ray's object store, for Spark or Ray Data.

`block_results` is the sink. `block_writer` gathers the rows of a subtask into blocks. `block_holder` is the
actor that owns them. `bounded_results` runs or finds the job whose results are wanted.

Touches Ray; knows neither Spark's session nor Ray Data. May import `arrow`.
"""
