"""/v1/completions: prompts as token ids, so that lengths are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.runs.request import RequestForm
from bench.workloads.endpoints.choices import Choices
from bench.workloads.endpoints.kind import Prompt

if TYPE_CHECKING:
    import openai


class Completions(Choices):
    name = "completions"
    meaning = "prompts as token ids, to /v1/completions"
    path = "completions"
    keys = ("prompt",)
    reasons = False
    kinds = ("text",)

    def options(self, form: RequestForm, prompt: Prompt, output: int, **more: Any) -> dict[str, Any]:
        options = super().options(form, prompt, output, **more)
        if not form.sends("max_tokens"):  # which the SDK does not know here
            further = {"max_completion_tokens": options.pop("max_completion_tokens")}
            options["extra_body"] = {**further, **options.get("extra_body", {})}
        return options

    def created(self, sdk: openai.OpenAI, model: str, options: Mapping[str, Any]) -> Any:
        return sdk.completions.create(model=model, **options)

    def put(self, body: dict[str, Any], prompt: Prompt) -> None:
        body["prompt"] = prompt

    def text_of(self, choice: Mapping[str, Any]) -> Any:
        return choice.get("text")
