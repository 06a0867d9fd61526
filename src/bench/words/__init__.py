"""What is said of results: sentences and cells of tables from the numbers and the typed evidence of `bench.analysis`, a file a subject.

Nothing is decided here, and nothing but text is returned.
"""
