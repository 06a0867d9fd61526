"""What crosses from stage to stage: typed records with their reading, writing and checksums, and the summary's columns.

`checkpoint`: checkpoint.json. `launch`: launch.json. `engine`: engine.json. `deployment`: deployment.json. `run`: run.json. `pack`:
pack.json. `request`: requests.jsonl, and `request_table` the same as a table. `run_summary`: summary.json. `columns`: the catalogue of
the summary's columns, and `summary` that table. Stages import from these modules, which import `bench.errors` alone. The load process,
which must start in a tenth of a second, imports `request`: it, and what it needs, is of the standard library.
"""
