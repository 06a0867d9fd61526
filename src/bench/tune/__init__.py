"""The best settings of a server: which candidate to start next, what its start shows, and what the winner gains.

`standing` has the one model of all visits, `race` decides by it, and `visits` starts real servers.
"""
