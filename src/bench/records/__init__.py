"""What crosses from stage to stage as JSON: typed records with their reading, writing and checksums.

`launch`: launch.json. `engine`: engine.json. `deployment`: deployment.json. `run`: run.json. `request`: requests.jsonl, and
`request_table` the same as a table. Stages import from these modules, which import `bench.errors` alone; only `request_table` needs
more than the standard library, since the load process, which must start in a tenth of a second, imports `request`.
"""
