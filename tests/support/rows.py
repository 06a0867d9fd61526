"""Cases of one behaviour as the rows of a table, which one test goes through."""

import copy
import functools
import inspect
from contextlib import ExitStack

import pytest


def rows(names, cases):
    """Call the test with each of the cases, as `parametrize` would; what fails says of which row.

    Args:
        names: of the arguments that the cases are. A row has a folder, a monkeypatch and dictionaries of its own where a test asks
            for `tmp_path`, `monkeypatch` or a fixture that is a dictionary.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def tabled(test):
        @functools.wraps(test)
        def through_all(*args, **given):
            for number, case in enumerate(cases):
                case = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                with ExitStack() as stack:
                    own = {key: copy.deepcopy(value) if isinstance(value, dict) else value for key, value in given.items()}
                    if "tmp_path" in own:
                        own["tmp_path"] = given["tmp_path"] / f"row{number}"
                        own["tmp_path"].mkdir()
                    if "monkeypatch" in own:
                        own["monkeypatch"] = stack.enter_context(pytest.MonkeyPatch.context())
                    try:
                        test(*args, **own, **case)
                    except BaseException as failure:
                        failure.add_note(f"Row {number}: {case!r:.300}")
                        raise

        asked = inspect.signature(test)
        through_all.__signature__ = asked.replace(parameters=[x for x in asked.parameters.values() if x.name not in names])
        return through_all

    return tabled
