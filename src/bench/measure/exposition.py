"""What answers where a server's metrics should be, and whether to read it: the same for a study, `bench find` and `bench workload`.
It is a first look, of names and a few values; `bench.parse` reads it all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import requests
from prometheus_client.samples import Sample

from bench.errors import BenchError, shown
from bench.headers import UNAUTHORIZED, own_headers
from bench.http import get, leads_away, metrics_root, problem
from bench.parse.exposition import ExpositionError, reference_samples
from bench.runs.deployment import KvFacts
from bench.runs.environment import without_secrets, without_user, without_values
from bench.servers.facts import server_info
from bench.servers.kind import Kind, Labelled
from bench.servers.metrics import Catalogue, apart, find_catalogue


def metric_names(text: str) -> set[str]:
    """Names of the samples of an exposition; none of a text that is not one."""
    return {sample.name for sample in _samples(text) or ()}


def metric_values(text: str, names: Collection[str]) -> list[float] | None:
    """Values of the samples with these names that count each request once (`apart`); None of a text that is no exposition."""
    samples = _samples(text)
    if samples is None:
        return None
    kind = find_catalogue({sample.name for sample in samples}).kind
    alike = [[sample for sample in samples if sample.name == name] for name in names]
    return [float(series[place].value) for series in alike for place in _apart(series, kind)]


def _samples(text: str) -> list[Sample] | None:
    try:
        return reference_samples(text)
    except ExpositionError:
        return None


def _apart(series: Sequence[Sample], kind: Kind | None) -> Sequence[int]:
    return apart([sample.labels for sample in series], kind) if kind else range(len(series))


def engine_kind(text: str) -> str | None:
    """Which engine exposes it; None where none that is known does."""
    found = find_catalogue(metric_names(text)).kind
    return found.name if found else None


def kv_facts(text: str, info: Mapping[str, Any], kind: Kind | None = None, *, alike: bool = True) -> KvFacts:
    """The KV cache as a server's exposition reports it, of all engines behind the endpoint together.

    Args:
        info: what the server reports elsewhere. kind: which engine it is; None: by its exposition.
        alike: whether all of the model's layers keep the same tokens. Else blocks × tokens of a block are no sequence's tokens, and
            only tokens that the server reports are known.
    """
    samples = _samples(text) or ()
    found = find_catalogue({sample.name for sample in samples})
    kind = kind or found.kind
    if kind is None:
        return KvFacts(kv_blocks=None, block_size=None, kv_tokens=None)
    exposed: dict[str, list[Labelled]] = {}
    for fact, name in found.facts.items():
        series = [sample for sample in samples if sample.name == name]
        exposed[fact] = [(series[place].labels, series[place].value) for place in _apart(series, kind)]
    facts = kind.kv_facts(exposed, info)
    product = facts.kv_blocks and facts.block_size and facts.kv_blocks * facts.block_size
    return facts if alike or facts.kv_tokens != product else replace(facts, kv_tokens=None)


_WHERE = (
    "; llama-server has it with --metrics, SGLang with --enable-metrics, TensorRT-LLM at /prometheus/metrics, NIM at /v1/metrics; of a "
    "router or a proxy, give the address of the engine itself"
)


@dataclass(frozen=True)
class Found:
    """What answers at an address of metrics.

    Attributes:
        address: of the metrics. headers: that go there, the key among them. why: why it is not read, in words; empty where it is a
            known engine's with all that it should have. text: the exposition. info: what the server reports of itself, its `version`
            among it where it is known.
    """

    address: str
    headers: Mapping[str, str] = field(repr=False)
    why: str = ""
    text: str = ""
    info: Mapping[str, Any] = field(default_factory=dict)


def find_metrics(
    base_url: str, address: str | None, headers: Mapping[str, str], *, served: bool = False, alone: bool = True
) -> Found:
    """Ask once, and say what answers, and what the server reports of itself.

    Args:
        base_url: of the server that gets the load. address: of the metrics; None: /metrics there. headers: for that server; they go to
            the metrics only where these are on the same scheme, host and port, and so does the key in OPENAI_API_KEY.
        served: whether the server is known to have answered a request. Some engines expose a metric only when it counted something.
        alone: whether the metrics are those of the only engine behind `base_url`, which then may speak for it.
    """
    metrics = address or f"{base_url}/metrics"
    own = own_headers(metrics, base_url, headers)
    theirs = own_headers(base_url, base_url, headers)

    def info_there() -> dict[str, Any]:
        return server_info(base_url, theirs) if alone else {}

    try:
        answer = get(metrics, headers=own)
    except requests.RequestException as error:
        why = f"{metrics} does not answer ({problem(error)})"
        return Found(metrics, own, why, info=info_there())
    # Behind a gateway, what exposes the metrics is the engine itself.
    info = server_info(metrics_root(metrics), own)
    if not info and metrics_root(metrics) != base_url:
        info = info_there()
    why = _judged(metrics, answer, info.get("version"), served=served)
    return Found(metrics, own, without_values(why, own.values()), answer.text if answer.ok else "", info)


def worth_reading(found: Found, *, named: str | None, say: Callable[[str], None]) -> bool:
    """Whether to scrape. Otherwise a run is measured without telemetry, and `say` gets the reason.

    Args:
        named: what promises that there are metrics: the key or the option that gives their address, or the server that is started
            here; None where the address is only the usual one.

    Raises:
        BenchError: something promises metrics, and they cannot be read.
    """
    if not found.why:
        return True
    if named is not None:
        raise BenchError(f"{named}: {found.why}.")
    say(f"without telemetry: {found.why}; causes and KV cache stay unknown")
    return False


def _judged(metrics: str, answer: requests.Response, version: str | None, *, served: bool) -> str:
    status, where = answer.status_code, f"{metrics} answers {answer.status_code}"
    if target := leads_away(answer):
        away = shown(without_user(target), 200)
        return f"{where} and leads to {away}, another server, to which nothing is sent"
    if status in UNAUTHORIZED:
        why = "it wants an API key, or another one (OPENAI_API_KEY). Headers go to the server's own scheme, host and port alone"
        return f"{where}: {why}"
    try:
        names = {sample.name for sample in reference_samples(answer.text)}
    except ExpositionError as error:
        before = "\n".join(answer.text.split("\n")[: error.line - 1])
        if metric_names(before) and status == requests.codes.ok:
            return f"{metrics} has a line that cannot be read ({error}), so nothing is scraped there; correct what writes it"
        names = set()
    if status != requests.codes.ok or not names:
        return f"{where} without an exposition{_words(answer)}{_WHERE}"
    found = find_catalogue(names, version)
    said = f"{metrics} lacks {'; '.join(found.missing)}"
    if found.engine is None:
        some = ", ".join(shown(name, 60) for name in sorted(names)[:3])  # quoted: they are somebody else's
        return f"{said}; it has {some}{_WHERE}"
    return said if found.missing and (served or _counted(answer.text, found)) else ""


def _counted(text: str, found: Catalogue) -> bool:
    """Whether the engine has served a request, by what it exposes."""
    names = found.sample_names()
    wanted = [names[metric] for metric in ("server_generation_tokens", "server_prompt_tokens") if metric in names]
    return any(value > 0 for value in metric_values(text, wanted) or ())


def _words(answer: requests.Response) -> str:
    text = re.sub(r"<[^>]*>|\s+", " ", without_secrets(answer.content[:2000]).decode(errors="replace"))
    text = re.sub(r" +", " ", text).strip()
    return f" ({shown(text, 120)})" if text else ""
