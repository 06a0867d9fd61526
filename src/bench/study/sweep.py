"""Deployments with `sweep` become one deployment for each combination, and their ladders one for each of those.

That happens to the plain mapping, before it is checked: names, digests, jobs, tables and figures only ever see single deployments.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from bench.errors import BenchError, meant, shown
from bench.fields import LONGEST_NAME, NAME
from bench.runs.environment import is_secret
from bench.servers.deployment import NESTED, SWEPT, Deployment

_MOST = 1000  # most combinations of a sweep; convention
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
class Combination:
    """One deployment of a sweep.

    Attributes:
        base: the deployment whose sweep it is of. settings: what the sweep gives it, by key.
    """

    name: str
    base: str
    settings: Mapping[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{key}: {_written(value)}" for key, value in self.settings.items()) or "nothing changed"


@dataclass(frozen=True)
class Expansion:
    """A configuration without sweeps, and which part of it came from where.

    Attributes:
        content: the configuration, as its file has it where nothing is swept.
        combinations: of all sweeps. ladders: by the place of each ladder, its place in the file.
        faults: why sweeps are refused, by the deployment that has them; those stay as they are, but for their sweeps.
    """

    content: Mapping[str, Any]
    combinations: Sequence[Combination] = ()
    ladders: Sequence[int] = ()
    faults: Sequence[tuple[str, str]] = ()

    @property
    def swept(self) -> dict[str, list[str]]:
        """The names of the combinations, by the deployment whose sweep they are of."""
        names: dict[str, list[str]] = {}
        for each in self.combinations:
            names.setdefault(each.base, []).append(each.name)
        return names

    def told(self, faults: Iterable[str]) -> Iterator[tuple[str | None, str]]:
        """Faults in the words of the file: with its ladders, and each once, whichever combinations have it.

        Returns:
            Each with the swept deployment that it belongs to; None where it belongs to none.
        """
        by_name = {each.name: each for each in self.combinations}
        # The longest first: one name may begin with another.
        names = "|".join(map(re.escape, sorted(by_name, key=len, reverse=True)))
        found: dict[tuple[str | None, str], dict[str, Combination]] = {}
        for fault in faults:
            text = re.sub(r"study\.ladders\[(\d+)\]", self._written_place, fault)
            match = re.match(rf"deployments\.({names})(?![a-z0-9-])", text) if names else None
            of = by_name[match[1]] if match else None
            key = (of.base, text.replace(f"deployments.{of.name}", f"deployments.{of.base}", 1)) if of else (None, text)
            found.setdefault(key, {}).update({of.name: of} if of else {})
        every = Counter(each.base for each in self.combinations)
        for (base, text), of_one in found.items():
            if base is None or len(of_one) == every[base]:
                yield base, text
                continue
            first, *others = of_one.values()
            named = text.replace(f"deployments.{base}", f"deployments.{first.name}", 1)
            likewise = f" Likewise: {', '.join(each.name for each in others)}." if others else ""
            left_out = " A list of mappings in its place can leave it out." if len(first.settings) > 1 else ""
            yield base, f"{named} This is the combination `{first}` of deployments.{base}.sweep.{likewise}{left_out}"

    def _written_place(self, match: re.Match[str]) -> str:
        place = int(match[1])
        return f"study.ladders[{self.ladders[place] if place < len(self.ladders) else place}]"


def expand(content: Mapping[str, Any]) -> Expansion:
    """A configuration in which each combination of a sweep is a deployment of its own.

    A sweep is a product of the values of each key, or a list of such products, as of scikit-learn's `ParameterGrid`. Anything that is
    not of the form of a configuration is left as it is.
    """
    deployments = content.get("deployments")
    if not isinstance(deployments, Mapping) or not any(isinstance(x, Mapping) and "sweep" in x for x in deployments.values()):
        return Expansion(content)
    single: dict[Any, Any] = {}
    combinations: list[Combination] = []
    faults: list[tuple[str, str]] = []
    for name, entry in deployments.items():
        if not isinstance(entry, Mapping) or "sweep" not in entry:
            single[name] = entry
            continue
        base = {key: value for key, value in entry.items() if key != "sweep"}
        try:
            if not re.fullmatch(NAME, str(name)):
                raise BenchError(f": {shown(name)} is not a name. A name has lower case letters, digits, `.` and `-`.")
            found = _combinations(str(name), entry["sweep"])
            taken = [each.name for each in found if each.name in single or (each.name in deployments and each.name != name)]
            if taken:
                raise BenchError(f": the combination {taken[0]} has the name of another deployment. Rename that one.")
            single |= _distinct(base, found)
            combinations += found
        except BenchError as error:
            faults.append((str(name), f"deployments.{name}.sweep{error}"))
            single[name] = base
    return _with_ladders({**content, "deployments": single}, combinations, faults)


def _with_ladders(content: dict[str, Any], combinations: Sequence[Combination], faults: Sequence[tuple[str, str]]) -> Expansion:
    """The ladder of a swept deployment once for each of its combinations; where a tuning names it, they all compete."""
    tune = content.get("tune")
    if isinstance(tune, Mapping) and isinstance(asked := tune.get("deployments"), str | list):
        bases = [asked] if isinstance(asked, str) else asked
        single_names = [[each.name for each in combinations if each.base == base] or [base] for base in bases]
        content = {**content, "tune": {**tune, "deployments": list(itertools.chain.from_iterable(single_names))}}
    study = content.get("study")
    ladders = study.get("ladders") if isinstance(study, Mapping) else None
    if not isinstance(ladders, list):
        return Expansion(content, combinations, (), faults)
    written: list[int] = []
    single: list[Any] = []
    for place, ladder in enumerate(ladders):
        wanted = ladder.get("deployment") if isinstance(ladder, Mapping) else None
        names = [each.name for each in combinations if each.base == wanted]
        single += [{**ladder, "deployment": name} for name in names] or [ladder]
        written += [place] * max(1, len(names))
    return Expansion({**content, "study": {**study, "ladders": single}}, combinations, written, faults)  # type: ignore[dict-item]


def _combinations(base: str, sweep: Any) -> list[Combination]:
    """A BenchError's message goes on after the sweep's key."""
    if sweep is None or sweep == {}:
        raise BenchError(" has no keys. Give a key with its values, such as max_num_seqs: [32, 64]; or remove sweep.")
    products = sweep if isinstance(sweep, list) else [sweep]
    if not products or not all(isinstance(product, Mapping) for product in products):
        raise BenchError(
            f" is {shown(sweep)}: no combinations. Give a mapping such as {{max_num_seqs: [32, 64]}}, each value of one key with each "
            "of the others; or a list of such mappings."
        )
    values = [{key: _values(key, given) for key, given in product.items()} for product in products]
    if (count := sum(math.prod(map(len, product.values())) for product in values)) > _MOST:
        raise BenchError(f" has {count:,} combinations, and a sweep has {_MOST:,} at most. Give fewer values.")
    settings = [
        {key: value for key, value in zip(product, chosen, strict=True) if value is not None}
        for product in values
        for chosen in itertools.product(*product.values())
    ]
    found: dict[str, Combination] = {}
    for each in settings:
        own = Combination(_name(base, each), base, each)
        other = found.setdefault(own.name, own)
        if other is not own and str(other) == str(own):
            raise BenchError(f": `{own}` stands twice. Remove one.")
        if other is not own:
            raise BenchError(
                f": `{other}` and `{own}` would both be called {own.name}. Write one of them out as a deployment of its own."
            )
    return list(found.values())


def _values(key: Any, given: Any) -> list[Any]:
    """The values of one key; None stands for what the deployment has."""
    name = str(key)
    nested, _, inner = name.partition(".")
    if name in NESTED:
        raise BenchError(f".{name}: name the part to sweep, such as {NESTED[name]}: [...].")
    if not (inner if nested in NESTED else name in SWEPT):
        close = meant(name, SWEPT)
        raise BenchError(
            f".{name} is not a key of a deployment. "
            + (
                f"Did you mean {close}?"
                if close and close not in NESTED
                else f"Known here: {', '.join(SWEPT)}, flags.NAME and environment.NAME."
            )
        )
    values = given if isinstance(given, list) else [given]
    if not values:
        raise BenchError(f".{name} has no values. Give at least one.")
    for value in values:
        if not isinstance(value, str | int | float | bool | None):
            raise BenchError(
                f".{name} has the value {shown(value)}, which is neither a number nor a text. Give a list of those."
            )
        if sum(type(other) is type(value) and other == value for other in values) > 1:  # `1` and `true` are equal
            raise BenchError(f".{name} has the value {_written(value)} twice. Remove one.")
        if nested in NESTED and is_secret(inner, str(value)):
            raise BenchError(f".{name} holds a secret, which would appear in names of deployments. Export it instead.")
    return values


def _distinct(base: Mapping[str, Any], found: Sequence[Combination]) -> dict[str, dict[str, Any]]:
    """Deployments by their names; a BenchError's message goes on after the sweep's key."""
    single: dict[str, dict[str, Any]] = {}
    seen: dict[str, str] = {}
    for each in found:
        entry = single[each.name] = _deployment(base, each.settings)
        try:
            checked = Deployment.model_validate(entry)
        except ValidationError:  # which says more once the whole configuration is checked
            continue
        # As JSON, `1` is not `true`, and flags have no order.
        same = json.dumps(checked.model_dump(), sort_keys=True)
        if same in seen:
            raise BenchError(f": {seen[same]} and {each.name} are the same server. Remove one of them.")
        seen[same] = each.name
    return single


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


def _written(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
