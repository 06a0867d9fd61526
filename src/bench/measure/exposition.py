"""What answers where a server's metrics should be, and whether to read it: the same for a study, `bench find` and `bench workload`.
It is a first look, of names and a few values; `bench.parse` reads it all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import requests
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bench.errors import BenchError, shown
from bench.headers import ABSENT, UNAUTHORIZED, own_headers, same_server
from bench.http import get, leads_away, metrics_root, problem, wanted
from bench.parse.exposition import ExpositionError, reference_samples
from bench.runs.deployment import KvFacts
from bench.runs.environment import without_secrets, without_user, without_values
from bench.servers.facts import server_info
from bench.servers.kind import Kind, Labelled
from bench.servers.metrics import Catalogue, apart, find_catalogue

_NAME_END = re.compile(r"[{ \t]")
_SAMPLE = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\s*\{.*\}\s*|\s+)[+-]?(?:\.?\d|inf|nan)", re.IGNORECASE)


def metric_names(text: str) -> set[str]:
    """Names of the samples of an exposition; none of a text that is not one."""
    found = [_SAMPLE.match(line) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    names = [match[1] for match in found if match]
    return set(names) if 2 * len(names) > len(found) else set()  # a page may have a line that looks like a sample


def metric_values(text: str, names: Collection[str]) -> list[float] | None:
    """Values of the samples with these names that count each request once (`apart`); None where they cannot be read."""
    samples = _samples(text, names)
    if samples is None:
        return None
    if kind := find_catalogue({sample.name for sample in samples}).kind:
        alike = [[sample for sample in samples if sample.name == name] for name in names]
        samples = [series[place] for series in alike for place in apart([sample.labels for sample in series], kind)]
    return [float(sample.value) for sample in samples]


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
    found = find_catalogue(metric_names(text))
    kind = kind or found.kind
    if kind is None:
        return KvFacts(kv_blocks=None, block_size=None, kv_tokens=None)
    samples = _samples(text, found.facts.values()) or ()
    exposed: dict[str, list[Labelled]] = {}
    for fact, name in found.facts.items():
        series = [(sample.labels, sample.value) for sample in samples if sample.name == name]
        if series:
            exposed[fact] = [series[place] for place in apart([labels for labels, _ in series], kind)]
    facts = kind.kv_facts(exposed, info)
    product = facts.kv_blocks and facts.block_size and facts.kv_blocks * facts.block_size
    return facts if alike or facts.kv_tokens != product else replace(facts, kv_tokens=None)


def _samples(text: str, names: Collection[str]) -> list[Sample] | None:
    # No other line is read: what is odd about those is not asked here.
    lines = "".join(f"{line}\n" for line in text.splitlines() if _name(line) in names)
    try:
        return [sample for family in text_string_to_metric_families(lines) for sample in family.samples]
    except Exception:  # whatever a parser of other people's text may raise
        return None


def _name(line: str) -> str:
    return _NAME_END.split(line, maxsplit=1)[0]


# `read`: a known engine's, with all that it should have; `incomplete`: without; `unread`: nothing that a run can be measured with.
State = Literal["read", "incomplete", "unread"]
_PAGE = re.compile(r"\s*(?:<!doctype|<html|<\?xml)", re.IGNORECASE)
# Of vLLM production stack's router (src/vllm_router/services/metrics_service), which has no prefix of its own.
_UNDER_ANOTHERS = {"vllm:current_qps", "vllm:healthy_pods_total", "vllm:num_prefill_requests", "vllm:avg_latency"}
_SWITCHES = "; llama-server exposes it with --metrics, SGLang with --enable-metrics"
_PATHS = "; TensorRT-LLM has its exposition at /prometheus/metrics, NIM at /v1/metrics"


@dataclass(frozen=True)
class Found:
    """What answers at an address of metrics.

    Attributes:
        address: of the metrics. headers: that go there, the key among them. state: what answers. why: why it is not read, in words;
            empty where it is. text: the exposition. info: what the server reports of itself, its `version` among it where it is known.
    """

    address: str
    headers: Mapping[str, str] = field(repr=False)
    state: State
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
        return Found(metrics, own, "unread", why, info=info_there())
    # Behind a gateway, what exposes the metrics is the engine itself.
    info = server_info(metrics_root(metrics), own)
    if not info and metrics_root(metrics) != base_url:
        info = info_there()
    state, why = _judged(metrics, answer, info.get("version"), served=served)
    if answer.status_code in UNAUTHORIZED and not leads_away(answer):
        why += _about_the_key(metrics, base_url, own, wanted(answer.headers.get("WWW-Authenticate")))
    return Found(metrics, own, state, without_values(why, own.values()), answer.text if answer.ok else "", info)


def worth_reading(found: Found, *, named: str | None, say: Callable[[str], None]) -> bool:
    """Whether to scrape. Otherwise a run is measured without telemetry, and `say` gets the reason.

    Args:
        named: what promises that there are metrics: the key or the option that gives their address, or the server that is started
            here; None where the address is only the usual one.

    Raises:
        BenchError: something promises metrics, and they cannot be read.
    """
    if found.state == "read":
        return True
    table = " A metric that has another name there needs a line in src/bench/servers/metrics.toml."
    hint = table if found.state == "incomplete" else ""
    if named is not None:
        raise BenchError(f"{named}: {found.why}.{hint}")
    say(f"without telemetry: {found.why}; causes and KV cache stay unknown")
    return False


def _judged(metrics: str, answer: requests.Response, version: str | None, *, served: bool) -> tuple[State, str]:
    status, names = answer.status_code, metric_names(answer.text)
    if target := leads_away(answer):
        why = (
            f" {status} and leads to {shown(without_user(target), 200)}, another server, to which nothing is sent; if the metrics are "
            "there, give that address"
        )
    elif status in UNAUTHORIZED:
        why = f" {status}"
    elif status != requests.codes.ok:
        why = f" {status}{_words(answer)}{_SWITCHES if status in ABSENT else ''}"
    else:
        kind = answer.headers.get("Content-Type", "")
        page = _PAGE.match(answer.text) or ("html" in kind and not names)
        if names and not page:
            return _recognised(metrics, answer.text, names, find_catalogue(names, version), served=served)
        if page:
            why = f" with a page{_words(answer)}"
        elif answer.text.lstrip().startswith(("{", "[")) or "json" in kind:
            why = f" with JSON in place of an exposition{_PATHS}"
        elif all(not line.strip() or line.startswith("#") for line in answer.text.splitlines()):
            return "unread", f"{metrics} has no sample{_SWITCHES}"
        else:
            why = f" with something else than an exposition{_words(answer)}"
    return "unread", f"{metrics} answers{why}"


def _recognised(metrics: str, text: str, names: set[str], found: Catalogue, *, served: bool) -> tuple[State, str]:
    said = f"{metrics} lacks {'; '.join(found.missing)}"
    if found.engine is None:
        return "unread", f"{said}; it has {_few(names)}{_ENGINES_OWN}"
    if found.missing and _UNDER_ANOTHERS & names:
        why = f"it is a router's, which counts under {found.engine}'s names: give each engine's own address"
        return "unread", f"{said}; {why}"
    if found.missing and (served or _counted(text, found)):
        return "incomplete", said
    try:
        reference_samples(text)
    except ExpositionError as error:
        why = f"has a line that cannot be read ({error}), so nothing is scraped there; correct what writes it"
        return "unread", f"{metrics} {why}"
    return "read", ""


_ENGINES_OWN = "; of a router or a proxy, give the address at which the engine itself exposes its own"


def _counted(text: str, found: Catalogue) -> bool:
    """Whether the engine has served a request, by what it exposes."""
    names = found.sample_names()
    wanted = [names[metric] for metric in ("server_generation_tokens", "server_prompt_tokens") if metric in names]
    return any(value > 0 for value in metric_values(text, wanted) or ())


def _about_the_key(metrics: str, base_url: str, own: Mapping[str, str], other: str | None) -> str:
    """Args: other: what is wanted in place of a key."""
    if other:
        if not same_server(metrics, base_url):
            return f": it wants {other}, and headers go to no other scheme, host or port than {base_url}; expose it without"
        return (
            f": it wants {other}, not an API key; give the header Authorization, with 'Basic ' and the base64 of USER:PASSWORD in a "
            "variable, and requests get it too"
        )
    if not own and metrics_root(metrics) != metrics_root(f"{base_url}/metrics") and own_headers(base_url, base_url, {}):
        return f": it wants an API key, and that of {base_url} goes to no other scheme, host or port"
    return f": it wants {'another' if own else 'an'} API key; export it as OPENAI_API_KEY"


def _few(names: set[str]) -> str:
    """Some names, quoted: they are somebody else's."""
    shortest = sorted(names)[:3]
    return ", ".join(shown(name, 60) for name in shortest) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _words(answer: requests.Response) -> str:
    text = re.sub(r"<[^>]*>|\s+", " ", without_secrets(answer.content[:2000]).decode(errors="replace"))
    text = re.sub(r" +", " ", text).strip()
    return f" ({shown(text, 120)})" if text else ""
