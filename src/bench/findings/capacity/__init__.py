"""The highest load that a curve sustains within the SLOs: judged, said, drawn."""
