"""What a load-generating client costs and hides, measured against a server of known truth."""
