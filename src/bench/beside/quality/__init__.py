"""Answers that are programs or calls of functions, graded by the set that they answer."""
