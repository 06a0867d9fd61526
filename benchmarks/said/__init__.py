"""What a study's outputs say against its own tables: a checker of text and figures, and planted studies for it."""
