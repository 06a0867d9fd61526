"""Deployments with `sweep` become one deployment for each combination, and their ladders one for each of those.

That happens to the plain mapping, before it is checked: names, digests, jobs, tables and figures only ever see single deployments.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.errors import BenchError, meant, shown
from bench.fields import LONGEST_NAME, NAME
from bench.runs.environment import is_secret
from bench.servers.deployment import NESTED, SWEPT

_MOST = 1000  # most combinations of a sweep, each of them a server; convention
_DIGITS = 6  # digits of the digest with which a name ends that would be too long; convention
# Ahead of a value in a name. Keys that are not here, flags and variables stand by their own names; where the value is a name itself,
# nothing does.
_SHORT = {
    "model": "",
    "engine": "",
    "dtype": "",
    "served_name": "",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "data_parallel": "dp",
    "max_num_seqs": "seqs",
    "block_size": "block",
    "kv_cache_memory": "kv",
    "kv_cache_dtype": "kv",
    "gpu_memory_utilization": "mem",
    "prefix_caching": "prefix",
}


@dataclass(frozen=True)
class Expansion:
    """A configuration without sweeps, and which part of it came from where.

    Attributes:
        content: the configuration, as its file has it where nothing is swept.
        swept: names of the combinations, by the deployment whose sweep they are of. ladders: by the place of each ladder, its place in
            the file.
    """

    content: Mapping[str, Any]
    swept: Mapping[str, Sequence[str]] = field(default_factory=dict)
    ladders: Sequence[int] = ()

    def told(self, faults: Iterable[str]) -> list[str]:
        """Faults with the ladders and deployments of the file, each once, whichever combinations have it."""
        bases = {name: base for base, names in self.swept.items() for name in names}
        known = "|".join(map(re.escape, sorted(bases, key=len, reverse=True)))  # the longest first: one may begin with another

        def in_file(fault: str) -> str:
            text = re.sub(r"study\.ladders\[(\d+)\]", lambda match: f"study.ladders[{self._place(int(match[1]))}]", fault)
            return re.sub(rf"^deployments\.({known})(?![a-z0-9-])", lambda match: f"deployments.{bases[match[1]]}", text)

        return list(dict.fromkeys(map(in_file, faults) if bases else faults))

    def _place(self, place: int) -> int:
        return self.ladders[place] if place < len(self.ladders) else place


def expand(content: Mapping[str, Any]) -> Expansion:
    """A configuration in which each combination of a sweep is a deployment of its own.

    A sweep is a product of the values of each key, or a list of such products, as of scikit-learn's `ParameterGrid`. Anything that is
    not of the form of a configuration is left as it is.

    Raises:
        BenchError: a sweep is wrong.
    """
    deployments = content.get("deployments")
    if not isinstance(deployments, Mapping) or not any(isinstance(x, Mapping) and "sweep" in x for x in deployments.values()):
        return Expansion(content)
    single: dict[Any, Any] = {}
    swept: dict[str, list[str]] = {}
    for name, entry in deployments.items():
        if not isinstance(entry, Mapping) or "sweep" not in entry:
            single[name] = entry
            continue
        base = {key: value for key, value in entry.items() if key != "sweep"}
        try:
            if not re.fullmatch(NAME, str(name)):
                raise BenchError(f": {shown(name)} is not a name. A name has lower case letters, digits, `.` and `-`.")
            found = _combinations(str(name), entry["sweep"])
            if taken := [each for each in found if each in single or (each in deployments and each != name)]:
                raise BenchError(f": the combination {taken[0]} has the name of another deployment. Rename that one.")
        except BenchError as error:
            raise BenchError(f"deployments.{name}.sweep{error}") from None
        single |= {each: _deployment(base, settings) for each, settings in found.items()}
        swept[str(name)] = list(found)
    return _with_ladders({**content, "deployments": single}, swept)


def _with_ladders(content: dict[str, Any], swept: Mapping[str, Sequence[str]]) -> Expansion:
    """The ladder of a swept deployment once for each of its combinations; where a tuning names it, they all compete."""
    tune = content.get("tune")
    if isinstance(tune, Mapping) and isinstance(asked := tune.get("deployments"), str | list):
        bases = [asked] if isinstance(asked, str) else asked
        names = itertools.chain.from_iterable(swept.get(str(base), [base]) for base in bases)
        content = {**content, "tune": {**tune, "deployments": list(names)}}
    study = content.get("study")
    ladders = study.get("ladders") if isinstance(study, Mapping) else None
    if not isinstance(study, Mapping) or not isinstance(ladders, list):
        return Expansion(content, swept)
    single: list[tuple[int, Any]] = []
    for place, ladder in enumerate(ladders):
        names_of = swept.get(str(ladder.get("deployment")), []) if isinstance(ladder, Mapping) else []
        single += [(place, {**ladder, "deployment": name}) for name in names_of] or [(place, ladder)]
    content = {**content, "study": {**study, "ladders": [ladder for _, ladder in single]}}
    return Expansion(content, swept, [place for place, _ in single])


def _combinations(base: str, sweep: Any) -> dict[str, dict[str, Any]]:
    """What each combination gives its deployment, by its name. A BenchError's message goes on after the sweep's key."""
    products = sweep if isinstance(sweep, list) else [sweep]
    if not products or not all(isinstance(product, Mapping) for product in products) or sweep == {}:
        raise BenchError(
            f" is {shown(sweep)}: no combinations. Give a mapping such as {{max_num_seqs: [32, 64]}}, each value of one key with each "
            "of the others; or a list of such mappings."
        )
    values = [{key: _values(key, given) for key, given in product.items()} for product in products]
    if (count := sum(math.prod(map(len, product.values())) for product in values)) > _MOST:
        raise BenchError(f" has {count:,} combinations, and a sweep has {_MOST:,} at most. Give fewer values.")
    found: dict[str, dict[str, Any]] = {}
    for product in values:
        for chosen in itertools.product(*product.values()):
            settings = {key: value for key, value in zip(product, chosen, strict=True) if value is not None}
            if (name := _name(base, settings)) in found:
                raise BenchError(
                    f": two combinations would be called {name}. Remove one, or write it out as a deployment of its own."
                )
            found[name] = settings
    return found


def _values(key: Any, given: Any) -> list[Any]:
    """The values of one key; None stands for what the deployment has."""
    name = str(key)
    nested, _, inner = name.partition(".")
    if name in NESTED:
        raise BenchError(f".{name}: name the part to sweep, such as {NESTED[name]}: [...].")
    if not (inner if nested in NESTED else name in SWEPT):
        close = meant(name, SWEPT)
        hint = f"Did you mean {close}?" if close else f"Known here: {', '.join(SWEPT)}, flags.NAME and environment.NAME."
        raise BenchError(f".{name} is not a key of a deployment. {hint}")
    values = given if isinstance(given, list) else [given]
    if not values or not all(isinstance(value, str | int | float | bool | None) for value in values):
        raise BenchError(f".{name} is {shown(given)}. Give a list of numbers or texts.")
    if nested in NESTED and any(is_secret(inner, str(value)) for value in values):
        raise BenchError(f".{name} holds a secret, which would appear in names of deployments. Export it instead.")
    return values


def _deployment(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    entry = dict(base)
    for key, value in settings.items():
        nested, _, inner = key.partition(".")
        if nested in NESTED:
            outer = entry.get(nested)
            entry[nested] = {**(outer if isinstance(outer, Mapping) else {}), inner: value}
        else:
            entry[key] = value
    return entry


def _name(base: str, settings: Mapping[str, Any]) -> str:
    """The base's name and each key with its value, whatever other combinations there are: `server-tp2-seqs64`."""
    name = "-".join([base, *filter(None, itertools.starmap(_part, settings.items()))])
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - _DIGITS - 1].rstrip('-.')}-{hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]}"


def _part(key: str, value: Any) -> str:
    label = _SHORT.get(key, _slug(key.partition(".")[2] or key))
    # A slug has no minus, and -1 is not 1.
    text = _slug({True: "on", False: "off"}[value] if isinstance(value, bool) else re.sub(r"^-(?=[.\d])", "minus", str(value)))
    apart = "-" if label and (not text[:1].isdigit() or label[-1].isdigit()) else ""
    return f"{label}{apart}{text}".strip("-")


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
