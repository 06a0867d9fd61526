"""Cases of one behaviour as the rows of a table, which one test goes through."""

import copy
import functools
import inspect
from contextlib import ExitStack

import pytest


def cases(names, table):
    """Call the test with each row of the table, as `parametrize` would; what fails says of which row.

    Args:
        names: of the arguments that a row gives. A row has a folder, a monkeypatch and dictionaries of its own, where the test asks
            for `tmp_path`, `monkeypatch` or a fixture that is a dictionary.
        table: its rows.
    """
    names = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

    def tabled(test):
        @functools.wraps(test)
        def through_all(*args, **given):
            for number, row in enumerate(table):
                case = dict(zip(names, row if len(names) > 1 else (row,), strict=True))
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
