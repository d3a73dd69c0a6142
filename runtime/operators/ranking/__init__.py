"""Records chosen by key: the first, the latest, the best.

- `ranked_columns`: base of the operators whose keys are named by columns; their state is in columns.
- `deduplicate`: the first record of a key, and the latest one. `top_n`: the best records of a key.
- `ranking_functions`: these choices with a key function; their keyed state is in rows.
- `saved_ranking`: the arguments in a snapshot; a restore with other arguments is refused.
"""
