"""How often each check of a run is wrong: made runs of known truth, sound ones and ones with one planted fault."""
