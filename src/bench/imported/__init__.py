"""Result files of other tools, as runs that stand beside our own."""

from bench.imported.formats import FORMATS
from bench.imported.kind import Definition, Format, PeerRun
from bench.imported.read import read_peers
from bench.imported.summary import Imported, imported, write_imported

__all__ = ["FORMATS", "Definition", "Format", "Imported", "PeerRun", "imported", "read_peers", "write_imported"]
