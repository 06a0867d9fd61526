"""`results/sessions/DEPLOYMENT/SESSION.json`: what a session measured, as a list of its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SessionIndex:
    """The files of a session, each with its SHA-256.

    Attributes:
        digest: of the deployment. facts: of `deployment.json`. searches: of `search.json`; None for a session that searches nothing.
        runs: of the record of each run that is measured, by the run's name; those that searches chose among them.
    """

    deployment: str
    session: int
    digest: str
    facts: str
    searches: str | None
    runs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ParsedSession:
    """`results/sessions/DEPLOYMENT/SESSION-parsed.json`: which records of a session are parsed.

    Attributes:
        code: digest of the code that parsed them. runs: as of the index.
    """

    code: str
    runs: Mapping[str, str]
