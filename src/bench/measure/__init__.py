"""A session: one server, every run that is missing, and nothing left running afterwards.

`session.measure` is the whole of it; `recording.record_run` measures one run anywhere. `scraper` is a process of its own. `slurm`:
what a session asks of a cluster.
"""
