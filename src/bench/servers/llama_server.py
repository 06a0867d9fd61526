"""llama.cpp's own HTTP server, from the wheel `xllamacpp`, with flags of its command `llama-server`.

Run as a program by the engine's Python: `python llama_server.py --model FILE --port PORT ...`. It imports the standard library and
xllamacpp, nothing of this package. It serves until SIGTERM or SIGINT, and logs to standard error.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

_POOLINGS = ("unspecified", "none", "mean", "cls", "last", "rank")
_CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0")


def flags() -> argparse.ArgumentParser:
    """The flags; names, meanings and defaults are llama-server's."""
    parser = argparse.ArgumentParser(prog="llama_server.py", allow_abbrev=False, exit_on_error=False)
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--model", required=True, help="the GGUF file")
    parser.add_argument("--alias", help="the model's name in the API")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--parallel", type=int, default=1, help="slots: requests that are served at once")
    parser.add_argument(
        "--ctx-size", type=int, default=0, help="tokens of KV cache, of all slots together; 0: the model's context"
    )
    parser.add_argument("--kv-unified", action=yes_or_no, default=False, help="one KV cache that the slots share")
    parser.add_argument("--batch-size", type=int, default=2048, help="most tokens of a step")
    parser.add_argument("--ubatch-size", type=int, default=512, help="most tokens computed at a time")
    parser.add_argument("--threads", type=int, default=-1, help="that compute")
    parser.add_argument("--threads-http", type=int, default=-1, help="that serve connections, one each")
    parser.add_argument("--cache-type-k", choices=_CACHE_TYPES, default="f16")
    parser.add_argument("--cache-type-v", choices=_CACHE_TYPES, default="f16")
    parser.add_argument("--flash-attn", choices=("on", "off", "auto"), default="auto")
    parser.add_argument("--cache-prompt", action=yes_or_no, default=True, help="reuse a slot's KV cache for a common prefix")
    parser.add_argument("--cache-ram", type=int, default=8192, help="MiB for the KV caches of idle slots; 0: none are kept")
    parser.add_argument("--spec-type", choices=("none", "ngram-simple"), default="none", help="how tokens are drafted")
    ngram = "--spec-ngram-simple"
    parser.add_argument(f"{ngram}-size-n", type=int, default=12, help="last tokens that are looked up in what came before")
    parser.add_argument(f"{ngram}-size-m", type=int, default=48, help="tokens that are drafted from there")
    parser.add_argument(f"{ngram}-min-hits", type=int, default=1, help="fewest times that they must have come before")
    parser.add_argument("--embedding", action="store_true", help="serve embeddings alone")
    parser.add_argument(
        "--pooling", choices=_POOLINGS, default="unspecified", help="how the vectors of tokens become a prompt's"
    )
    parser.add_argument("--seed", type=int, default=-1)
    parser.add_argument("--warmup", action=yes_or_no, default=True)
    parser.add_argument("--metrics", action="store_true", help="serve /metrics")
    parser.add_argument("--slots", action=yes_or_no, default=True, help="serve /slots")
    return parser


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the flags; end the program where one is wrong."""
    parser = flags()
    try:
        return parser.parse_args(words)
    except argparse.ArgumentError as error:
        parser.error(str(error))


def parameters(given: argparse.Namespace) -> Any:
    """The flags as xllamacpp takes them."""
    import xllamacpp as llama  # noqa: PLC0415 - only the engine's environment has it

    cache_type = {name: getattr(llama.ggml_type, f"GGML_TYPE_{name.upper()}") for name in _CACHE_TYPES}
    flash = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[given.flash_attn]
    p = llama.CommonParams()
    p.model.path = given.model
    if given.alias:
        p.model_alias = {given.alias}
    p.hostnames, p.port = [given.host], given.port
    p.n_parallel, p.n_ctx, p.kv_unified = given.parallel, given.ctx_size, given.kv_unified
    p.n_batch, p.n_ubatch = given.batch_size, given.ubatch_size
    p.n_threads_http = given.threads_http
    for pool in (p.cpuparams, p.cpuparams_batch):
        pool.n_threads = given.threads
    p.cache_type_k, p.cache_type_v = cache_type[given.cache_type_k], cache_type[given.cache_type_v]
    p.flash_attn_type = getattr(llama.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{flash}")
    p.cache_prompt, p.cache_ram_mib = given.cache_prompt, given.cache_ram
    kind = given.spec_type.upper().replace("-", "_")
    p.speculative.types = [getattr(llama.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{kind}")]
    ngram = p.speculative.ngram_simple
    ngram.size_n, ngram.size_m = given.spec_ngram_simple_size_n, given.spec_ngram_simple_size_m
    ngram.min_hits = given.spec_ngram_simple_min_hits
    p.embedding = given.embedding
    p.pooling_type = getattr(llama.llama_pooling_type, f"LLAMA_POOLING_TYPE_{given.pooling.upper()}")
    if given.seed >= 0:
        p.sampling.seed = given.seed
    p.warmup = given.warmup
    p.endpoint_metrics, p.endpoint_slots = given.metrics, given.slots
    p.ui = False
    return p


def main(words: Sequence[str]) -> int:
    given = arguments(words)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before the server's threads, which inherit it
    import xllamacpp as llama  # noqa: PLC0415

    print(f"xllamacpp {version('xllamacpp')}; {llama.get_system_info().strip()}", file=sys.stderr, flush=True)
    server = llama.Server(parameters(given))
    print(f"listening on {server.listening_address}", file=sys.stderr, flush=True)
    signal.sigwait(stops)
    print("stopping", file=sys.stderr, flush=True)
    # Without its destructor, which waits for requests that are under way. Nothing has to be written.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
