"""What runs show, a file or a folder a finding: its table, its sentences, its chart."""
