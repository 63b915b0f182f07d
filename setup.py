"""What pyproject.toml cannot say: with DHSCHED_COMPILE=1 the core is built as extension modules.

`tool.dhsched.core` names the modules that every record passes. mypyc makes C of them, from the same
files and types; without the variable, or where a module is imported from its source, they run as
Python. Needs a C compiler.
"""

import os
import tomllib
from pathlib import Path

from setuptools import Extension, setup


def core() -> list[Extension]:
    """The extension modules: none unless they are asked for."""
    if os.environ.get("DHSCHED_COMPILE", "") in ("", "0"):
        return []
    from mypyc.build import mypycify

    project = tomllib.loads(Path("pyproject.toml").read_text())
    flags = ["--follow-imports=silent", "--ignore-missing-imports"]
    return mypycify(
        [*flags, *project["tool"]["dhsched"]["core"]], opt_level="3", target_dir="build/mypyc"
    )


setup(ext_modules=core())
