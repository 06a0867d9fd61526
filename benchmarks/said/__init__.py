"""What a study's outputs say against its own tables: a checker of rendered text and figures, and planted studies of all kinds for it."""
