"""One deployment against another: matched, judged, said, drawn."""
