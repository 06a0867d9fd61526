"""What a session asks of a SLURM cluster, and whether the cluster can give it. Definitions: the guide to clusters."""

from bench.cluster.configuration import keep_configuration
from bench.cluster.gpu_types import gpu_types
from bench.cluster.needs import Needs, needs_of
from bench.cluster.partitions import Partition, partition_for, partitions, refusal
from bench.cluster.status import has_accounting, left_jobs, show_preempted_as_cancelled

__all__ = [
    "Needs",
    "Partition",
    "gpu_types",
    "has_accounting",
    "keep_configuration",
    "left_jobs",
    "needs_of",
    "partition_for",
    "partitions",
    "refusal",
    "show_preempted_as_cancelled",
]
