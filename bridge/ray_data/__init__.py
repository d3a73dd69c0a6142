"""Ray Data in and out of jobs: `from_ray_dataset` and `to_ray_dataset`.

`datasets` has the two functions, `dataset_source` reads a dataset's blocks as splits, `block_columns` gives
them one schema.

Touches Ray and Ray Data, and knows nothing of Spark. May import `blocks` and `arrow`.
"""
