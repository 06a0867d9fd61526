"""What a model's weights, KV cache and states weigh, from its config.json, and checkpoints made from that.

`catalogue`: models and GPUs as others have published them, each number with its source, in the YAML beside them.
"""
