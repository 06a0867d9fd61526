"""The tools whose result files are read. One more is a file beside this one, and a row here."""

from bench.imported.aiperf import AIPERF
from bench.imported.guidellm import GUIDELLM
from bench.imported.inference_perf import INFERENCE_PERF
from bench.imported.vllm import VLLM

FORMATS = {each.name: each for each in (VLLM, GUIDELLM, AIPERF, INFERENCE_PERF)}
