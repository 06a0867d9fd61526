"""What a study says of a server in production: Prometheus rules from its measured limits."""

from bench.guard.rules import load_rules

__all__ = ["load_rules"]
