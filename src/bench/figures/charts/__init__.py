"""One figure a file; the file's name is the figure's."""
