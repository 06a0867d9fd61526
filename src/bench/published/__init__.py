"""What others have published, each number with its source: GPUs, models, and the traffic that people serve.

GPUs and models stand in `hardware.yaml` and `models.yaml` beside this file, where an installed package has them too; archetypes of
traffic in `archetypes.py`. Nothing here knows a study.
"""

from bench.published.archetypes import ARCHETYPES
from bench.published.hardware import Accelerator, accelerator_named, accelerators
from bench.published.models import DECODER_KEYS, CatalogueEntry, catalogue, catalogue_key, context_of, decoder_part

__all__ = [
    "ARCHETYPES",
    "DECODER_KEYS",
    "Accelerator",
    "CatalogueEntry",
    "accelerator_named",
    "accelerators",
    "catalogue",
    "catalogue_key",
    "context_of",
    "decoder_part",
]
