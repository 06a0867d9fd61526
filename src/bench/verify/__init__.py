"""Whether a pack or a folder of results is what was measured: checksums, digests, and what is made of the raw records, made again."""
