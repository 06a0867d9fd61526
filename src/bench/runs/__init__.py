"""What crosses from stage to stage: typed records with their reading, writing and checksums, and the folders of finished runs.

Records: `launch`, `deployment`, `run`, `request` (`request_table` the same as a table), `searches`; `columns`: the catalogue of the
summary's columns, and `summary` that table. The load process, which must start in a tenth of a second,
imports `request`: it, and what it needs, is of the standard library.
"""
