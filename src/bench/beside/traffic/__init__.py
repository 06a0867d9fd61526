"""An access log: what it says of the traffic, and loads that are like it."""
