"""`python -m bench.study FILE...`: read configurations ahead of Snakemake, whose answer to one that it cannot read is a traceback."""

import sys
from pathlib import Path

from bench.errors import BenchError
from bench.terminal import print_anything
from bench.yaml_file import read_yaml

print_anything()
for name in sys.argv[1:]:
    try:
        read_yaml(Path(name))
    except BenchError as error:
        sys.exit(str(error))
