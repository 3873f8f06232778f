"""A wheel holds what the checkout holds: modules, and the data files that they read."""

import subprocess
import tomllib

import pytest

from tests.conftest import ROOT

PACKAGES = ("harness", "tasks", "trainers", "baselines")
NOT_READ = {".md"}


def tracked():
    done = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *PACKAGES], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout: nothing says which files belong to it")
    return [ROOT / name for name in done.stdout.decode().split("\0") if name]


def test_every_data_file_is_declared_as_package_data():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    globs = settings["tool"]["setuptools"]["package-data"]
    packed = {file for name in globs for glob in globs[name] for file in (ROOT / name).glob(glob)}
    data = {f for f in tracked() if f.suffix != ".py" and f.suffix not in NOT_READ}
    assert data
    assert data - packed == set()


def test_every_folder_with_modules_is_a_package():
    folders = {f.parent for f in tracked() if f.suffix == ".py"}
    assert {folder for folder in folders if not (folder / "__init__.py").is_file()} == set()
