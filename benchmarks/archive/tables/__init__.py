"""Parse, aggregate and figures of many runs: ours against pandas and matplotlib."""
