"""A session: one server, every run that is missing, and nothing left running afterwards.

`session.measure` is the whole of it; `recording.record_run` measures one run anywhere. `bench.store` knows what is missing, and keeps
what is finished.
"""
