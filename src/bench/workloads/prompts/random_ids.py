"""Random prompts of exact lengths, alike as far as the workload demands and no further: token ids, or letters where text is sent."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from bench.errors import BenchError
from bench.fields import Count
from bench.runs.request import RequestForm
from bench.workloads.endpoints import Endpoint, Prompt, dialogue
from bench.workloads.prompts.kind import Made, Making, Source

if TYPE_CHECKING:
    from bench.workloads.schedule import PlannedRequest

FIRST_ID = 3  # below it lie the special tokens of nearly every vocabulary (begin, end, padding)
_QUERY = 12  # tokens of a query: less than a block of a prefix cache, which documents would share; convention: a search of some words
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY_OF_LETTERS = FIRST_ID + len(_LETTERS)  # of ids that stand for letters


class RandomIds(Source):
    """Random prompts of the lengths that the workload asks for."""

    name: ClassVar[str] = "random"
    meaning: ClassVar[str] = "random tokens, of exactly the lengths asked for"
    sized: ClassVar[bool] = True
    caches: ClassVar[tuple[str, ...]] = ("unique", "shared", "repeated")

    source: Literal["random"] = Field(description="Random tokens.")
    documents: Count = Field(
        default=1, description="Documents of each request to endpoint `rerank`, of equal lengths, beside a query of 12 tokens."
    )

    def check(self, endpoint: Endpoint, turns: int = 1) -> None:  # noqa: ARG002
        if self.documents > 1 and not endpoint.ranks:
            raise BenchError(f"documents: endpoint {endpoint.name} takes none. Remove the key, or use endpoint rerank.")

    def fewest(self, endpoint: Endpoint, form: RequestForm) -> int:
        shortest = super().fewest(endpoint, form)
        return self.documents * (shortest + form.letter_tokens) if endpoint.ranks else shortest

    def maker(self, making: Making) -> Callable[[PlannedRequest], Made]:
        form = making.form

        def ids(wanted: PlannedRequest) -> Prompt:
            if wanted.blocks:
                return block_ids(making.seed, wanted.blocks, wanted.block_tokens, wanted.prompt_tokens, making.vocabulary)
            return request_ids(making.seed, wanted.conversation, wanted.shared_tokens, wanted.prompt_tokens, making.vocabulary)

        def spelt(wanted: PlannedRequest, messages: tuple[int, ...]) -> list[str]:
            """Texts of the messages: the first has what the server adds to it."""
            sizes = [_letters_of(form, messages[0] - form.template_tokens)]
            for place, tokens in enumerate(messages[1:]):
                # What the server adds for a further turn is part of what the turn adds.
                sizes.append(_letters_of(form, tokens - form.turn_tokens * (place % 2)))
            # What is shared is counted in tokens too, and what the server adds is part of it.
            shared = _letters_of(form, wanted.shared_tokens - form.template_tokens)[0] if wanted.shared_tokens else 0
            return pieces(wanted, shared, sizes)

        def pieces(wanted: PlannedRequest, shared: int, sizes: Sequence[tuple[int, int]]) -> list[str]:
            """Texts of so many letters and full stops each, pieces of one stream."""
            count = sum(each for each, _ in sizes)
            stream = iter(request_ids(making.seed, wanted.conversation, shared, count, VOCABULARY_OF_LETTERS))
            return [letters(list(itertools.islice(stream, each))) + "." * rest for each, rest in sizes]

        def text(wanted: PlannedRequest) -> Prompt:
            if not wanted.blocks:
                return spelt(wanted, (wanted.prompt_tokens,))[0]
            count, rest = _letters_of(form, wanted.prompt_tokens - form.template_tokens)
            ids = block_ids(making.seed, wanted.blocks, wanted.block_tokens, wanted.prompt_tokens, VOCABULARY_OF_LETTERS)
            # Each letter is that of the token at which it begins; what the server adds stands ahead of the first.
            return letters(ids[form.template_tokens :: form.letter_tokens][:count]) + "." * rest

        def chat(wanted: PlannedRequest) -> Prompt:
            return dialogue(spelt(wanted, wanted.messages or (wanted.prompt_tokens,)))

        def query(wanted: PlannedRequest) -> Prompt:
            """A query and its documents, whose tokens with the query and what the server adds are alike but for one."""
            each, more = divmod(wanted.prompt_tokens, self.documents)
            sizes = [_letters_of(form, each + (i < more) - form.template_tokens) for i in range(self.documents)]
            asked = min(max(1, _QUERY // form.letter_tokens), min(count for count, _ in sizes) // 2)
            return pieces(wanted, 0, [(asked, 0), *((count - asked, rest) for count, rest in sizes)])

        if making.endpoint.ranks:
            make = query
        elif making.endpoint.sends_text(form):
            make = chat if making.turns > 1 and making.endpoint.chats else text
        else:
            make = ids
        return lambda wanted: Made(make(wanted))


def prompt_ids(seed: str, index: int | str, length: int, vocabulary: int) -> list[int]:
    """Token ids of one prompt, the same on any machine for the same arguments; a shorter one is a prefix of a longer one.

    The ids are an extendable-output hash of the seed and the index, so prompts of different runs or conversations share no prefix
    that a cache could serve, without any record of what was drawn before.

    Args:
        seed: text that no other run uses (a run's digest, say).
        index: number of the conversation in its run.
        vocabulary: ids lie in [3, vocabulary).
    """
    stream = hashlib.shake_256(f"{seed}/{index}".encode()).digest(4 * length)
    span = vocabulary - FIRST_ID
    return [FIRST_ID + int.from_bytes(stream[i : i + 4], "little") % span for i in range(0, 4 * length, 4)]


def request_ids(seed: str, conversation: int, shared: int, length: int, vocabulary: int) -> list[int]:
    """The first `length` ids of a request's prompt: `shared` that its run shares, then what its conversation does.

    A later turn's prompt begins with all of the turns before it: it is a longer piece of the same stream.
    """
    shared = min(shared, length)
    head = prompt_ids(seed, "shared", shared, vocabulary) if shared else []
    return head + prompt_ids(seed, conversation, length - shared, vocabulary)


def block_ids(seed: str, blocks: Sequence[int], size: int, length: int, vocabulary: int) -> list[int]:
    """The first `length` ids of a prompt of blocks, each of `size` ids that its number draws."""
    ids: list[int] = []
    for number in blocks:
        ids += prompt_ids(seed, f"block/{number}", min(size, length - len(ids)), vocabulary)
    return ids


def letters(ids: Sequence[int]) -> str:
    """Text whose length in tokens is known: single letters after a space, which tokenizers neither merge nor split further.

    How many tokens a letter takes, and how many the server adds, is in the `RequestForm`.
    """
    return "".join(" " + _LETTERS[(i - FIRST_ID) % 26] for i in ids)


def _letters_of(form: RequestForm, tokens: int) -> tuple[int, int]:
    """Letters of a text of so many tokens, one at least, and full stops to add where a letter takes several."""
    count, rest = divmod(tokens, form.letter_tokens)
    return (count, rest) if count > 0 else (1, 0)
