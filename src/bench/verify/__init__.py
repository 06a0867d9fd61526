"""Whether a pack or a folder of results is what was measured: checksums, digests, and what is made of the raw records, made again."""

from bench.verify.check import Check
from bench.verify.pack import verify_pack
from bench.verify.results import verify_results

__all__ = ["Check", "verify_pack", "verify_results"]
