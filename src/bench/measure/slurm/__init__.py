"""What a session asks of a SLURM cluster, and whether the cluster can give it. Definitions: the guide to clusters."""
