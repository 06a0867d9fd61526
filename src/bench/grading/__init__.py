"""Answers that are programs, graded by the tests of the set that they answer."""

from bench.grading.answers import grade
from bench.grading.graded_set import Task, graded_sets, read_set
from bench.grading.program import program_of
from bench.grading.sandbox import Sandbox, Verdict, sandbox

__all__ = ["Sandbox", "Task", "Verdict", "grade", "graded_sets", "program_of", "read_set", "sandbox"]
