"""What a model's weights, KV cache and states weigh, from its config.json, and checkpoints made from that.

`catalogue` and `accelerators`: models and GPUs as others have published them, each number with its source, in the YAML beside them.
"""
