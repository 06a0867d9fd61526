"""altair, imported when a chart is drawn: it takes a second, and charts stand beside findings that most commands do not draw."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Any

__all__ = ["alt"]

if TYPE_CHECKING:
    import altair as alt
else:

    class _Altair:
        def __getattr__(self, name: str) -> Any:
            return getattr(_loaded(), name)

    alt = _Altair()


@cache
def _loaded() -> Any:
    """The library, in two thirds of its own time for a chart: it copies charts at each step, building each copy as it built the part
    with two more copies of what is in it, and lists all of its classes for each encoding that is a text.
    """
    import altair  # noqa: PLC0415
    from altair.utils import schemapi  # noqa: PLC0415

    plain = {str, int, float, bool, type(None), type(altair.Undefined)}

    def copied(part: Any, by_ref: Collection[str] = ()) -> Any:
        if isinstance(part, dict):
            return {key: each if type(each) in plain or key in by_ref else copied(each, by_ref) for key, each in part.items()}
        if isinstance(part, list):
            return [copied(each, by_ref) for each in part]
        if not isinstance(part, schemapi.SchemaBase):
            return part
        copy = object.__new__(type(part))
        object.__setattr__(copy, "_args", tuple(copied(each, by_ref) for each in part._args))
        object.__setattr__(copy, "_kwds", copied(part._kwds, by_ref))
        return copy

    wrapped = cache(lambda: from_dict(altair.VegaLiteSchema._default_wrapper_classes()))
    from_dict = schemapi._FromDict
    schemapi._deep_copy = copied  # type: ignore[assignment]
    schemapi._FromDict = lambda _: wrapped()  # type: ignore[misc, assignment]
    # Charts show what the tables hold; a study of more rows than altair's default limit is no mistake.
    altair.data_transformers.disable_max_rows()
    return altair
