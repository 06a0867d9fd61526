"""How well capacities and their causes are found: simulated servers of known truth, through the whole pipeline."""
