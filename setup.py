"""What pyproject.toml cannot say: the wheel gets the workflow, too, from the one copy at the root of the repository."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = ("workflow", "config", "profiles")  # src/bench/shipped.py finds them


class WithWorkflow(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "bench/_shipped"
        shutil.rmtree(target, ignore_errors=True)
        for name in SHIPPED:
            source = Path(name)
            files = [source] if source.is_file() else [f for f in source.rglob("*") if f.is_file() and f.suffix != ".pyc"]
            for file in files:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / file)


setup(cmdclass={"build_py": WithWorkflow})
