"""One file a command: its options, help and examples, and what it does.

`bench COMMAND --help` and completion import the file and must be there at once. So it imports Typer, the standard library and light
modules alone; what else the command needs is imported where it is used.
"""
