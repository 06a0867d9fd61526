"""Exactly specified load on an OpenAI-compatible server.

A session plans a run's requests (`schedule`), makes their bytes (`payload`) and starts load processes (`client`). Such a process,
`python -m bench.load`, is an event loop of its own over sockets (`loop`), which stamps what comes and parses nothing until the end.

Nothing is imported here, and nothing of the planning by `loop` and what it uses: the process imports the standard library, httptools
and the record of a request alone, so that it starts in a tenth of a second and nothing of the session shares its interpreter.
"""
