"""Workers of a local cluster are forked from a template, which has imported Ray and Penstock once.

- `worker_template`: starts the template along with a node; for the program that starts a local cluster.
- `entry`: the program that the node starts as a worker. It asks the template to fork one in its place.
- `template_process`: the template itself.

May import `master` and everything below.
"""
