"""Its commands, a file each."""
