"""The wheel and the sdist hold every file of the package, under `penstock/` and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("runtime", "actors", "bridge")
#: The public modules, beside links to the parts.
DOOR = ROOT / "src" / "penstock"


def package_files() -> set[str]:
    """Installed files, as paths in site-packages."""
    behind = {
        f"penstock/{file.relative_to(ROOT).as_posix()}"
        for part in PARTS
        for file in (ROOT / part).rglob("*")
        if file.suffix in (".py", ".properties")
    }
    door = {
        f"penstock/{file.relative_to(DOOR).as_posix()}"
        for folder in (DOOR, DOOR / "testing")
        for file in folder.iterdir()
        if file.suffix == ".py" or file.name == "py.typed"
    }
    return behind | door


def copy_of_the_checkout(target: Path) -> None:
    """The packaged files of a fresh clone; links stay links."""
    texts = ("README.md", "LICENSE", "CHANGELOG.md", "MANIFEST.in")
    for name in ("pyproject.toml", *texts, "tests/test_layers.py"):
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_bytes((ROOT / name).read_bytes())
    for file in package_files():
        source = PurePosixPath(file).relative_to("penstock")
        if source.parts[0] not in PARTS:  # of the door
            source = PurePosixPath("src") / file
        (target / source).parent.mkdir(parents=True, exist_ok=True)
        (target / source).write_bytes((ROOT / source).read_bytes())
    for part in PARTS:
        link = DOOR / part
        assert link.is_symlink(), f"{link} must stay a link to the folder at the top"
        (target / "src" / "penstock" / part).symlink_to(link.readlink())


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and with the wheel that was built from it (as `python -m build` does)."""
    checkout = tmp_path_factory.mktemp("checkout")
    copy_of_the_checkout(checkout)
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", target, checkout],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def only(folder: Path, pattern: str) -> Path:
    (file,) = folder.glob(pattern)
    return file


def test_the_wheel_holds_every_file_and_nothing_else(distributions: Path) -> None:
    with zipfile.ZipFile(only(distributions, "*.whl")) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
    installed = {name for name in names if ".dist-info/" not in name}
    assert installed == package_files()


def test_the_wheel_says_what_it_is(distributions: Path) -> None:
    with zipfile.ZipFile(only(distributions, "*.whl")) as wheel:
        (metadata,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
        text = wheel.read(metadata).decode()
        assert "License-Expression: Apache-2.0" in text
        assert "Requires-Python: >=3.11" in text
        assert "# Penstock" in text
        assert "ray = penstock.actors.client.executor:RayExecutor" in wheel.read(entry_points).decode()
        assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_the_sdist_holds_every_file_as_a_file(distributions: Path) -> None:
    with tarfile.open(only(distributions, "*.tar.gz")) as sdist:
        members = {member.name.partition("/")[2]: member for member in sdist.getmembers()}
    wanted = {f"src/{name}" for name in package_files()}
    assert wanted <= members.keys()
    assert all(members[name].isreg() for name in wanted)
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= members.keys()
    assert not any(name.startswith("tests") for name in members), "tests need a whole checkout"


def test_the_wheel_works_where_the_checkout_is_not(distributions: Path, tmp_path: Path) -> None:
    """Installed into a fresh environment that takes everything else from this one."""
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    scheme = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, only(distributions, "*.whl")], check=True)
    # Plain entries of a path file are not searched for path files, so the editable install stays out.
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    program = (
        "import importlib.util, penstock\n"
        "from penstock.runtime.graph.executor import find_executor\n"
        "print(penstock.__file__)\n"
        "print(type(find_executor()).__name__)\n"
        "print([n for n in ('runtime', 'actors', 'bridge') if importlib.util.find_spec(n)])\n"
        "for name in penstock.__all__: getattr(penstock, name)\n"
    )
    done = subprocess.run([python, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(site / "penstock/__init__.py"), "RayExecutor", "[]"]
