"""Products beside the core: each has commands of its own, none knows another, and nothing in the core imports one."""
