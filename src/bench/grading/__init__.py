"""Answers that are programs or calls of functions, graded by the set that they answer."""

from bench.grading.answers import grade
from bench.grading.calls import CallTask, right_calls
from bench.grading.graded_set import Task, graded_sets, read_set, set_checksums
from bench.grading.program import program_of
from bench.grading.sandbox import Sandbox, Verdict, sandbox

__all__ = [
    "CallTask",
    "Sandbox",
    "Task",
    "Verdict",
    "grade",
    "graded_sets",
    "program_of",
    "read_set",
    "right_calls",
    "sandbox",
    "set_checksums",
]
