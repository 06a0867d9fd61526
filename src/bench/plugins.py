"""What other packages add by the entry-point group `saturate.plugins`: endpoints, sources of prompts, engines, forms of traces,
sections and figures of the report, and commands; and by the same names what of these stands beside the core.

[project.entry-points."saturate.plugins"]
"endpoint.speech" = "my_package:Speech"
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from bench.errors import BenchError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "saturate.plugins"
T = TypeVar("T")
_BESIDE = {
    "archive": ("pack", "unpack", "verify"),
    "interop": ("import", "export"),
    "production": ("guard", "drifted"),
    "quality": ("grade",),
    "traffic": ("traffic",),
}
# What stands beside the core, which imports none of it. By name, so that it is there without an installation too: in jobs of a conda
# environment, and in another workflow's.
_OWN: dict[str, dict[str, str]] = {
    "command": {name: f"bench.beside.{room}.commands" for room, names in _BESIDE.items() for name in names},
    "grading": {"sets": "bench.beside.quality.answers:Grading"},
    "trace": {"otel": "bench.beside.traffic.otel:Spans", "weka": "bench.beside.traffic.weka:Sessions"},
}


@cache
def _entries(kind: str) -> Mapping[str, EntryPoint]:
    from importlib.metadata import EntryPoint, entry_points  # noqa: PLC0415 - it looks at every package, which costs 20 ms

    found = {name: EntryPoint(f"{kind}.{name}", value, GROUP) for name, value in _OWN.get(kind, {}).items()}
    for entry in entry_points(group=GROUP):
        own, _, name = entry.name.partition(".")
        if own != kind:
            continue
        if name in found:
            package = f"{entry.dist.name}=={entry.dist.version}" if entry.dist else entry.value
            raise BenchError(f"{package}: its {kind} {name!r} has the name of a built-in one. Rename it.")
        found[name] = entry
    return found


def plugged(kind: str, own: Collection[str]) -> dict[str, Any]:
    """The classes that other packages add, by name.

    Args:
        kind: such as `endpoint`, `section` or `engine`. own: names of this library's own, which no other package may take.

    Raises:
        BenchError: one has such a name, or cannot be imported; it names the package.
    """
    for name in names(kind):
        if name in own:
            raise BenchError(f"{origin(kind, name)}: its {kind} {name!r} has the name of a built-in one. Rename it.")
    return {name: plugin(kind, name) for name in names(kind)}


def names(kind: str) -> list[str]:
    """What the group has of a kind."""
    return list(_entries(kind))


def plugin(kind: str, name: str) -> Any:
    """What the entry point `kind.name` names. Raises BenchError where it cannot be imported; it names the package."""
    try:
        return _entries(kind)[name].load()
    except BenchError:
        raise
    except Exception as error:
        raise BenchError(
            f"{origin(kind, name)}: its {kind} {name!r} cannot be imported: {error}. Update or remove it."
        ) from error


def origin(kind: str, name: str) -> str | None:
    """The package that adds `name`, as `package==version`; None of what is this library's own."""
    entry = _entries(kind).get(name)
    return f"{entry.dist.name}=={entry.dist.version}" if entry and entry.dist else None


class Registry(dict[str, T]):
    """Things by name. Those of other packages are looked for once a name is none of ours, or all are asked for."""

    def __init__(self, kind: str, own: Mapping[str, T], made: Callable[[Any], T] = lambda each: each) -> None:
        """Args: made: what is entered of a class."""
        super().__init__(own)
        self._kind, self._own, self._made = kind, frozenset(own), made

    def __missing__(self, name: str) -> T:
        return {**self.every()}[name]

    def every(self) -> Registry[T]:
        """These with all that other packages add. Raises BenchError as `plugged`."""
        for name, added in plugged(self._kind, self._own).items():
            if name not in self:
                self[name] = self._made(added)
        return self
