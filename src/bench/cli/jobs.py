"""What every workflow script does around its one call: say what happens, keep a log, end with a readable error."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.errors import BenchError

__all__ = ["job"]


@contextmanager
def job(log: str | Path) -> Iterator[Callable[[str], None]]:
    """A job of the workflow: lines that it says go to standard error and, with the time, to `log`.

    A BenchError ends the process with status 1 and its message alone; any other error keeps its traceback, in the log too.
    """
    path = Path(log)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:

        def say(text: str) -> None:
            print(text, file=sys.stderr, flush=True)
            print(f"{time.strftime('%FT%TZ', time.gmtime())} {text}", file=file, flush=True)

        try:
            yield say
        except BenchError as error:
            say(str(error))
            sys.exit(1)
        except Exception:
            file.write(traceback.format_exc())
            raise
