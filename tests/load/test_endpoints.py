"""Servers that are not ours: below a path, behind TLS, with headers, with metrics elsewhere or nowhere, and with a rate limit."""

import gzip
import json
import ssl
import subprocess
import threading
from pathlib import Path

import psutil
import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.http import api_root, get
from bench.load.client import Load, run_load
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.measure.preflight import faults
from bench.measure.scraper import scraping
from bench.parse.validity import verdict
from bench.runs.request_table import read_requests
from bench.runs.store import Store
from bench.study.config import Thresholds
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workloads.schedule import PlannedRequest
from bench.workloads.workload import Workload
from tests.support.cases import cases
from tests.support.fake_server import fake_server, raw_server
from tests.support.planted import reasons
from tests.support.running import session, study_of
from tests.support.server import eventually
from tests.support.study import ROOT

MODELS = json.dumps({"data": [{"id": "a"}]})
GOLDEN = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
PAGES = {"/v1/models": MODELS}
SECRET = "kept-to-ourselves"  # noqa: S105


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def found(content):
    """What its preflight finds."""
    plan = Plan.of(load_config(content, source="t"), root=ROOT)
    return faults(plan, Store(Path("store")))


def send(server, count=2, arrival="burst", *, timeout_s=20.0, target=None, **more):
    load = {"arrival": arrival, "prompt_tokens": 8, "output_tokens": 4, **more}
    return run_load(
        target or Target(server.base_url, "m"), Load(Workload.model_validate(load), count, "s", timeout_s=timeout_s)
    ).records


def everywhere(folder):
    """All that was written below a folder, unpacked."""
    files = [path for path in folder.rglob("*") if path.is_file() and "tls" not in path.parts]
    return b"\n".join(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority's certificate, and servers' contexts with what it signed: for us, for another host, and one that has expired."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(command):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, cwd=folder)

    key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
    openssl(f"req -x509 {key} -subj /CN=authority -addext keyUsage=critical,keyCertSign -keyout ca.key -out ca.pem")
    contexts = {}
    hosts = {"right": ("IP:127.0.0.1", 2), "elsewhere": ("DNS:gateway.example", 2), "expired": ("IP:127.0.0.1", -1)}
    for name, (host, days) in hosts.items():
        (folder / "ext").write_text(f"subjectAltName={host}\nauthorityKeyIdentifier=keyid\n")
        openssl(f"req {key} -subj /CN={name} -keyout {name}.key -out {name}.csr")
        sign = "-CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext"
        openssl(f"x509 -req -in {name}.csr {sign} -days {days} -out {name}.pem")
        contexts[name] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[name].load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return folder / "ca.pem", contexts


def test_a_private_authority_is_trusted_by_all_that_asks(content, certificates, monkeypatch):
    """The preflight, the load, and the scraper, which is a process of its own."""
    authority, contexts = certificates
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with fake_server(tls=contexts["right"], pages=PAGES, metrics=GOLDEN) as server:
        assert found(study_of(content, f"{server.base_url}/v1")) == []
        assert [record.outcome for record in send(server)] == ["ok"] * 2
        url = f"{server.base_url}/metrics"
        assert main(["scrape", "--url", url, "--output-dir", "t", "--interval", "0.05", "--duration", "0.2"]) == 0
    assert [path for path, _ in server.requests].count("/metrics") > 1


@cases(
    ("certificate", "trusted", "message"),
    [
        (
            "right",
            False,
            "its certificate is not accepted: unable to get local issuer certificate; name the file of its authority",
        ),
        ("elsewhere", True, "its certificate is not accepted: IP address mismatch"),
        ("expired", True, "its certificate is not accepted: certificate has expired"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_named(content, certificates, monkeypatch, certificate, trusted, message):
    authority, contexts = certificates
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with fake_server(tls=contexts[certificate], pages=PAGES) as server:
        (fault,) = found(study_of(content, server.base_url))
        with pytest.raises(BenchError) as refused:  # before the first request, by the load's own client
            send(server)
    assert message in fault
    assert fault.startswith("engines.e.base_url: no server answers at ")
    assert message in str(refused.value)
    assert server.requests == []


def test_a_server_without_tls(content):
    def plain(connection):
        connection.recv(1024)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with raw_server(plain) as port:
        url = f"https://127.0.0.1:{port}"
        (fault,) = found(study_of(content, url))
        with pytest.raises(BenchError, match=r"it does not speak TLS"):
            send(None, target=Target(url, "m"))
        assert "it does not speak TLS; does its address begin with http://?" in fault


KEYS = {"X-Api-Key": "$GATEWAY_KEY", "Authorization": "Bearer ${TEAM_KEY}"}


@pytest.fixture
def keys(monkeypatch):
    """What the headers of KEYS have to be."""
    monkeypatch.setenv("GATEWAY_KEY", SECRET)
    monkeypatch.setenv("TEAM_KEY", f"team-{SECRET}")
    return {"x-api-key": SECRET, "authorization": f"Bearer team-{SECRET}"}


def test_headers_go_with_each_request_and_stay_in_no_file(content, keys):
    """To a server below a path, which is asked nowhere else."""
    content["workloads"]["short"]["endpoint"] = "chat"
    with fake_server(keys=keys, prefix="/proxy/llm", pages=PAGES, metrics=GOLDEN) as server:
        address = f"{server.base_url}/proxy/llm"
        assert {api_root(address + end) for end in ("", "/", "/v1", "/v1/")} == {address}
        assert found(study_of(content, f"{address}/v1/", headers=KEYS)) == []
        result, _, said = session(content)
    assert (result["ok"], result["failed"], result["scrapes"] > 1, result["scrape_endpoint"]) == (
        2,
        0,
        True,
        f"{address}/metrics",
    )
    assert {path for path, _ in server.requests if not path.startswith("/proxy/llm/")} == set()
    assert "/proxy/llm/v1/chat/completions" in {path for path, _ in server.requests}
    assert {name: {h.get(name) for _, h in server.requests} for name in keys} == {name: {value} for name, value in keys.items()}
    assert SECRET.encode() not in everywhere(Path.cwd())
    assert SECRET not in "\n".join(said)


def test_the_command_sends_headers_of_the_environment(keys, tmp_path, capsys):
    headers = [part for name, value in KEYS.items() for part in ("--header", f"{name}: {value}")]
    options = ("--model", "a", "--output-dir", "one", "--num-requests", "2", "--prompt-length", "8", "--scrape", *headers)
    with fake_server(keys=keys, prefix="/proxy", metrics=GOLDEN) as server:
        server_url = f"{server.base_url}/proxy"
        assert main(["workload", "--base-url", f"{server_url}/v1", *options]) == 0
        assert json.loads(Path("one/run.json").read_text())["scrape_endpoint"] == f"{server_url}/metrics"
        scrape = ("--url", f"{server_url}/metrics", "--output-dir", "t", "--duration", "0.3", *headers)
        assert main(["scrape", *scrape]) == 0
        assert main(["workload", "--base-url", server_url, *options[:-1], f"Authorization: Bearer {SECRET}"]) == 2
        assert main(["scrape", *scrape[:-1], "X-Other: $NOT_THERE"]) == 2
    out = capsys.readouterr()
    assert "--header: Authorization contains the value itself; export it" in out.err
    assert "--header.X-Other: the variable NOT_THERE is not set. Export it." in out.err
    assert SECRET not in out.err + out.out
    assert SECRET.encode() not in everywhere(tmp_path)


def test_a_key_goes_where_it_went_and_headers_come_beside_it():
    def sent(**given):
        load = Workload.model_validate({"arrival": "burst", "prompt_tokens": 8, "output_tokens": 4})
        payload = exchanges(Target("http://h", "m", **given), load, seed="s", vocabulary=100)
        lines = payload(PlannedRequest(0, 0, 8, 4)).payload.split(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}

    plain = sent()
    assert (plain["authorization"], sent(api_key="key")["authorization"]) == ("Bearer none", "Bearer key")
    both = sent(api_key="key", headers={"X-Key": "k", "authorization": "Basic b"})
    assert (both["authorization"], both["x-key"]) == ("Basic b", "k")
    further = sent(headers={"X-Key": "100%"})
    assert {**further, "authorization": "Bearer none"} == {**plain, "x-key": "100%"} and "authorization" not in further


def test_a_variable_that_is_not_there_is_refused_before_anything_is_asked(content, monkeypatch):
    with fake_server(pages=PAGES) as server:
        study_of(content, server.base_url, headers={"X-Api-Key": "$GATEWAY_KEY"})
        assert found(content) == ["engines.e.headers.X-Api-Key: the variable GATEWAY_KEY is not set. Export it."]
        monkeypatch.setenv("GATEWAY_KEY", f"{SECRET}\n")
        (fault,) = found(content)
        with pytest.raises(BenchError, match="the variable GATEWAY_KEY cannot be sent in a header"):
            session(content)
    assert "cannot be sent in a header" in fault
    assert SECRET not in fault
    assert server.requests == []


def test_no_process_has_a_value_among_its_arguments(keys, tmp_path):
    with fake_server(keys=keys, first_s=1.0, metrics=GOLDEN) as server:
        own = {"X-Api-Key": SECRET, "Authorization": f"Bearer team-{SECRET}"}
        target, url = Target(server.base_url, "m", headers=own), f"{server.base_url}/metrics"
        with scraping([url], 0.1, tmp_path / "t.gz", headers={url: own}):
            sending = threading.Thread(target=send, args=(server, 1), kwargs={"target": target})
            sending.start()
            assert eventually(lambda: server.arrivals, within=60)
            children = psutil.Process().children(recursive=True)
            lines = [" ".join(child.cmdline()) for child in children if child.status() != psutil.STATUS_ZOMBIE]
            sending.join()
    assert any("bench.measure.scraper" in line for line in lines)
    assert any("bench.load" in line for line in lines)
    assert not any(SECRET in line for line in lines)
    assert {headers["x-api-key"] for _, headers in server.requests} == {SECRET}


def test_metrics_at_another_address_get_no_headers(content, keys):
    with (
        fake_server(metrics=GOLDEN, pages={"/version": '{"version": "0.32.0"}'}) as engine,
        fake_server(keys=keys, pages={**PAGES, "/version": '{"version": "9"}'}) as gateway,
    ):
        study_of(content, gateway.base_url, headers=KEYS, metrics=f"{engine.base_url}/metrics")
        assert found(content) == []
        result, *_ = session(content)
    assert (result["ok"], result["scraped"], result["scrape_endpoint"]) == (2, True, f"{engine.base_url}/metrics")
    assert json.loads(Path("a/deployment.json").read_text())["engine_version"] == "0.32.0"
    assert not {"x-api-key", "authorization"} & {name for _, headers in engine.requests for name in headers}
    assert {path for path, _ in gateway.requests}.isdisjoint({"/metrics", "/version"})


def test_without_metrics_none_are_asked_for_and_causes_are_unknown(content):
    with fake_server(metrics=GOLDEN, pages=PAGES) as server:
        assert found(study_of(content, server.base_url, metrics="none")) == []
        result, _, said = session(content)
    assert (result["ok"], result["scraped"], result["scrape_endpoint"], result["kv_usage_peak"]) == (2, None, None, None)
    assert "/metrics" not in {path for path, _ in server.requests}
    assert not any("lacks" in line for line in said)


def test_metrics_that_are_not_where_the_study_says_are_refused(content):
    with fake_server(pages=PAGES, metrics="up 1\n") as server:
        (fault,) = found(study_of(content, server.base_url, metrics=f"{server.base_url}/metrics"))
        assert f"engines.e.metrics: {server.base_url}/metrics lacks the metrics of any engine that is known" in fault
        assert "the engine itself. Correct the address; `metrics: none` measures without" in fault
        with pytest.raises(BenchError, match="lacks the metrics of any engine"):
            session(content)
    (fault,) = (x for x in found(study_of(content, server.base_url, metrics="http://127.0.0.1:9/metrics")) if ".metrics" in x)
    assert (
        "http://127.0.0.1:9/metrics does not answer (no such host, connection refused, or hung up without an answer in HTTP/1.1)"
        in fault
    )


def test_a_refusal_is_a_failed_request_with_what_it_says():
    answers = [
        (429, {"Retry-After": "7"}),
        (429, {"Retry-After": "soon"}),
        (503, {}),
        None,
    ]
    with fake_server(refuse=lambda n: answers[n]) as server:
        given = send(server, 1, "closed", num_requests=4)
    refusals = [(r.status, r.retry_after_s) for r in given]
    assert refusals == [(429, 7.0), (429, None), (503, None), (200, None)]
    assert [r.outcome for r in given] == ["http_error"] * 3 + ["ok"]
    assert {(r.attempts, r.waited_s) for r in given} == {(1, 0.0)}
    assert len(server.arrivals) == 4


def test_a_request_that_waits_as_it_is_asked_is_one_request_to_its_user():
    """All three are refused twice, for a second each time; then each is answered after 50 ms."""

    def refuse(n):
        return (429 if n < 3 else 503, {"Retry-After": "1"}) if n < 6 else None

    with fake_server(first_s=0.05, refuse=refuse) as server:
        given = send(server, 3, honour_retry_after=True)
    assert [(r.outcome, r.status, r.attempts, r.waited_s, r.retry_after_s) for r in given] == [("ok", 200, 3, 2.0, None)] * 3
    assert all(r.ttft_s >= 2.05 and r.scheduled_s == pytest.approx(0, abs=1e-4) for r in given)
    assert len(server.arrivals) == 9


def test_what_is_not_sent_again():
    """Refusals without a wait, or of another kind, and a wait that is longer than a request may take."""
    answers = [(429, {}), (500, {"Retry-After": "0"}), (404, {"Retry-After": "0"}), (429, {"Retry-After": "60"}), None]
    with fake_server(refuse=lambda n: answers[n]) as server:
        given = send(server, 1, "closed", num_requests=5, timeout_s=5, honour_retry_after=True)
    assert [(r.status, r.attempts) for r in given] == [(429, 1), (500, 1), (404, 1), (429, 1), (200, 1)]
    assert (given[3].outcome, given[3].retry_after_s) == ("http_error", 60.0)


def test_a_server_that_says_at_once_is_not_asked_as_fast_as_it_answers():
    with fake_server(refuse=lambda _: (429, {"Retry-After": "0"})) as server:
        (record,) = send(server, 1, timeout_s=1.0, honour_retry_after=True)
    assert (record.outcome, record.status, record.retry_after_s) == ("http_error", 429, 0.0)
    assert 2 <= record.attempts <= 11
    assert record.attempts == len(server.arrivals)


def test_an_open_loop_goes_on_while_one_waits_and_a_silent_second_try_times_out():
    def refuse(n):
        return (429, {"Retry-After": "1"}) if n == 0 else None

    with fake_server(refuse=refuse) as server:
        given = send(server, 10.0, "constant", num_requests=5, honour_retry_after=True)
    assert [r.outcome for r in given] == ["ok"] * 5
    assert [r.attempts for r in given] == [2, 1, 1, 1, 1]
    assert max(r.end_s for r in given[1:]) < 1 < given[0].end_s
    with fake_server(behaviour="silent", refuse=refuse) as server:
        (record,) = send(server, 1, timeout_s=1.5, honour_retry_after=True)
    assert (record.outcome, record.attempts) == ("timeout", 2)
    assert record.end_s >= 1 + 1.5  # as long after it was sent the last time


def test_a_run_whose_requests_waited_is_marked_and_says_so(content, tmp_path, capsys):
    study_of(content, "http://h")
    plain = Plan.of(load_config(content, source="t")).runs[0]
    content["workloads"]["short"]["honour_retry_after"] = True
    marked = Plan.of(load_config(content, source="t")).runs[0]
    assert plain.digest != marked.digest and plain.name != marked.name
    (tmp_path / "load.yaml").write_text("arrival: burst\nprompt_tokens: 8\noutput_tokens: 4\nhonour_retry_after: true\n")
    with fake_server(refuse=lambda n: (429, {"Retry-After": "1"}) if n == 1 else None) as server:  # 0 is the introduction
        options = ("--model", "m", "--output-dir", "one", "--num-requests", "2", "--workload", "load.yaml")
        assert main(["workload", "--base-url", server.base_url, *options]) == 0
    assert main(["parse", "one"]) == 0
    said = "sent again           1 of 2 requests was refused and sent again, after waits of up to 1 s"
    assert said in capsys.readouterr().out
    result = json.loads(Path("one/summary.json").read_text())
    assert (result["ok"], result["failed"], result["honour_retry_after"]) == (2, 0, True)
    assert (result["retried"], result["retry_wait_max_s"]) == (1, 1.0)
    assert (result["client_in_flight_mean"], result["held_back_share"]) == (None, None)
    assert {r.attempts for r in read_requests(Path("one/requests.jsonl"))} == {1, 2}


def test_a_study_leaves_out_what_a_server_refuses_and_what_its_engine_omits(content):
    """A server that takes no ignore_eos, and whose template has 24 tokens."""

    def refuse(body):
        return (400, {"error": {"message": "Unsupported parameter: ignore_eos"}}) if "ignore_eos" in body else None

    with fake_server(answers=refuse, chat_template=24, ends=[12]) as server:
        content["workloads"]["short"] |= {"endpoint": "chat", "prompt_tokens": 64, "output_tokens": 16}
        result, _, said = session(study_of(content, server.base_url, omit=["temperature"]))
    assert any(f"{server.base_url} refuses ignore_eos: " in each for each in said)
    assert (result["ok"], result["wrong_prompt_tokens"], result["wrong_output_tokens"], result["short_answers"]) == (2, 0, 0, 2)
    assert (result["requests_omit"], result["template_tokens"]) == ("temperature, ignore_eos", 24)
    assert reasons(verdict(result, Thresholds(other_share=1.0))) == []
    assert server.bodies[1:]
    assert not any("temperature" in body for body in server.bodies[1:])  # the preflight's has none


@pytest.mark.usefixtures("keys")
def test_scraping_several_servers_sends_headers_to_the_first_alone():
    """An exporter beside the gateway is another server, on the same host too."""
    with fake_server(metrics=GOLDEN) as gateway, fake_server(metrics=GOLDEN) as exporter:
        pages = (f"{gateway.base_url}/metrics", f"{exporter.base_url}/metrics", f"{gateway.base_url}/metrics?of=all")
        urls = [part for page in pages for part in ("--url", page)]
        header = ("--header", "X-Api-Key: $GATEWAY_KEY")
        assert main(["scrape", *urls, "--output-dir", "t", "--interval", "0.05", "--duration", "0.1", *header]) == 0
    sent = [{headers.get("x-api-key") for _, headers in server.requests} for server in (gateway, exporter)]
    assert sent == [{SECRET}, {None}]


@pytest.mark.usefixtures("keys")
def test_headers_are_not_sent_on_to_another_server(content):
    with fake_server() as other, fake_server() as server:
        server.statuses["/v1/models"] = (307, {"Location": f"{other.base_url}/v1/models"})
        assert get(f"{server.base_url}/v1/models", headers={"X-Api-Key": SECRET}).status_code == 307
        (fault,) = found(study_of(content, server.base_url, headers=KEYS))
    assert f"redirects to {other.base_url}/v1/models" in fault
    assert other.requests == []


def test_a_warm_up_that_meets_a_rate_limit_says_how_to_go_on(content):
    with (
        fake_server(pages=PAGES, refuse=lambda _: (429, {"Retry-After": "1"})) as server,
        pytest.raises(BenchError, match=r"answers 429 to a first request, 3 times: .*Raise the server's rate limit"),
    ):
        session(study_of(content, server.base_url))
