"""A configuration file becomes a list of runs, each with a name, a path and a digest."""
