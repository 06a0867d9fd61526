"""Other tools: their result files read, measured deployments written for them."""
