"""What a session asks of a SLURM cluster, and whether the cluster can give it. Definitions: the guide to clusters."""

from bench.cluster.needs import Needs, needs_of
from bench.cluster.partitions import Partition, partitions, refusal
from bench.cluster.status import has_accounting

__all__ = ["Needs", "Partition", "has_accounting", "needs_of", "partitions", "refusal"]
