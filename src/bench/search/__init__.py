"""The highest load within SLOs, found by search: what the runs so far show, and where the next run shows most.

`observation` has what one run shows, `belief` where the limit may lie, `placing` the next run, `search` the loop, `running` the runs
against a server that is there. docs/explanation/search.md has the method and how often it is right.
"""
