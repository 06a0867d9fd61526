"""Packs: a study's runs as one file, and back."""
