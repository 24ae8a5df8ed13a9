"""Builds the wheel. With CARICO_WHEEL=image, without the packages of `not-in-image` in pyproject.toml."""

import os
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildPackages(build_py):
    def finalize_options(self) -> None:
        super().finalize_options()
        if os.environ.get("CARICO_WHEEL") != "image":
            return
        left_out = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["carico"]["not-in-image"]
        for package in left_out:  # an earlier build may have left it in build/, which goes into the wheel as it is
            shutil.rmtree(Path(self.build_lib, *package.split(".")), ignore_errors=True)
        self.packages = [name for name in self.packages if not any(f"{name}.".startswith(f"{p}.") for p in left_out)]


setup(cmdclass={"build_py": BuildPackages})
