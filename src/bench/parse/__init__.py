"""Raw records become tidy tables, and one summary a run."""
