"""What the tests of this room share."""

from tests.support.project import drawn_study

__all__ = ["drawn_study"]
