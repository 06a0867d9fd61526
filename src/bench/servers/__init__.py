"""The server's side: what it is said to be (`deployments:`, `engines:` of a study), and the one that is started by that.

One file per engine (`vllm`, `llamacpp`; those that are only measured in `measured`), named in `engines`. Then its memory (`plan`,
`memory`), its `environment`, `launch` and process (`server`), and the facts about it.
"""
