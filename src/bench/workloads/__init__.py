"""What load is said to be (`workloads:` of a study), and when each request of it is due.

`endpoints`: how a request is written and an answer read, a file each. `prompts`: a file per source. `schedule`: the requests of a run.
"""
