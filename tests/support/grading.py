"""Answers as a run keeps them."""


def kept(summary, deployment, texts, **more):
    answers = [
        {"answer": text, "request_digest": str(i), "prompt_place": f"line {i}", "prompt_digest": digest}
        for i, (digest, text) in enumerate(texts.items())
    ]
    return {**summary, "deployment": deployment, "run": deployment, "kept_answers": answers, **more}
