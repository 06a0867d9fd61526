"""Templates of what is written for other programs: numbers go in, and text that each of them reads comes out."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable
from functools import cache
from typing import Any

import jinja2

_WIDTH = 120  # characters of a comment's line; convention
_BREAKS = re.compile("[\x7f\x85\u2028\u2029]")  # of lines in YAML, but not in JSON


def render(package: str, template: str, **numbers: Any) -> str:
    """The text of a template in the folder `templates` of a package. A name that it has and `numbers` lacks is an error."""
    return _environment(package).get_template(template).render(numbers)


@cache
def _environment(package: str) -> jinja2.Environment:
    environment = jinja2.Environment(  # noqa: S701 - no HTML
        loader=jinja2.PackageLoader(package),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"q": quoted, "sh": shlex.quote, "comment": comment, "dollars": lambda text: text.replace("$", "$$")}
    return environment


def quoted(content: Any) -> str:
    """As JSON, which YAML is too."""
    return _BREAKS.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(content, ensure_ascii=False))


def comment(texts: Iterable[str], mark: str = "") -> str:
    """Texts as comments of a shell and of YAML, each wrapped on its own; empty ones are left out."""
    wrapped = (
        textwrap.wrap(f"{mark}{' '.join(text.split())}", _WIDTH - 2, subsequent_indent=" " * len(mark), break_long_words=False)
        for text in texts
        if text
    )
    return "".join(f"# {line}\n" for lines in wrapped for line in lines)
