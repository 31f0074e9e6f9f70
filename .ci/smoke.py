"""Use an installed wheel as a newcomer would; `python -I smoke.py WHEEL`."""

import importlib
import pkgutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import kafkalog
from kafkalog.errors import MissingPackage


def main(wheel: Path) -> None:
    """Look at the wheel's contents, then append, reopen, read, scan and call the command."""
    names = zipfile.ZipFile(wheel).namelist()
    extensions = [name for name in names if name.endswith(".so")]
    assert len(extensions) == 1 and extensions[0].endswith("_kl.abi3.so"), extensions
    assert "kafkalog/py.typed" in names and "pyspark_kafkalog/__init__.py" in names, names
    assert not any(name.startswith(("tests/", "examples/", "benchmarks/")) for name in names)
    installed = Path(kafkalog.__file__ or "").resolve()
    assert Path(sys.prefix).resolve() in installed.parents, f"imported from {installed}"

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orders-0"
        with kafkalog.Log(path) as log:
            assert log.append(b"value", key=b"key", headers=[("h", b"v")]) == 0
            for number, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
                span = log.append_many([b"x" * 100] * 1000, compression=codec)
                assert span.base_offset == 1 + number * 1000, span
        with kafkalog.Log(path, mode="r") as log:
            assert log.end_offset == 5001 and log[0].key == b"key"
            assert sum(1 for _ in log.read()) == 5001
            assert log.scan().count() == 5001
            assert sum(len(batch.numpy("offset")) for batch in log.scan()) == 5001
        command = Path(sys.executable).with_name("kafkalog")
        subprocess.run([command, "verify", path], check=True, stdout=subprocess.DEVNULL)
    import_all()
    print(f"the wheel works: {wheel.name}, {wheel.stat().st_size / 1e3:.0f} kB")


def import_all() -> None:
    """Import every module, as a construct may be too new for this Python; packages that are not
    installed may be missing."""
    for module in pkgutil.walk_packages(kafkalog.__path__, "kafkalog.", onerror=_missing):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError:
                _missing(module.name)


def _missing(name: str) -> None:
    """Accept a module whose import failed because another package is not installed."""
    problem = sys.exc_info()[1]
    absent = isinstance(problem, (MissingPackage, ModuleNotFoundError))
    if not absent or (getattr(problem, "name", None) or "").startswith("kafkalog"):
        raise AssertionError(f"{name} cannot be imported") from problem


if __name__ == "__main__":
    main(Path(sys.argv[1]))
