"""The build of kafkalog: metadata is in pyproject.toml, the C part in kafkalog/_native/build.py.

Environment:
    KAFKALOG_TEST_EXTENSION=1   also build _kl_test, the same sources with failpoints
    KAFKALOG_TEST_EXTENSION=only    build only _kl_test
    KAFKALOG_NO_EXTENSION=1     build neither; `make build` builds both in place afterwards
    KAFKALOG_PORTABLE=1         build the form for systems other than Linux, to test it here
    KAFKALOG_WERROR=1           a warning in our C files fails the build
    KAFKALOG_SANITIZE=a,b       build with these sanitizers (address,undefined)
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.command.editable_wheel import editable_wheel

PLATFORM = sysconfig.get_platform()  # what is built for; _PYTHON_HOST_PLATFORM names another

if sys.platform in ("win32", "cygwin"):
    sys.exit(
        "kafkalog does not run on Windows.  It does in WSL, and a container that runs "
        "`kafkalog test-broker` serves programs on Windows."
    )
if not PLATFORM.startswith(("linux-", "macosx-")):
    sys.exit(f"kafkalog runs on Linux and macOS: this is {PLATFORM}.")
if sys.byteorder != "little":
    sys.exit("kafkalog runs on little-endian machines only: this one is big-endian.")
if sys.maxsize < 2**63 - 1:
    sys.exit("kafkalog runs on 64-bit machines only: this Python has 32 bits.")
if sys.implementation.name != "cpython":
    sys.exit(f"kafkalog runs on CPython only: this is {sys.implementation.name}.")

ROOT = Path(__file__).resolve().parent


class PathEntries:
    """An editable install as two entries of sys.path.

    For two package roots setuptools would install an import hook, but PySpark finds data
    sources by listing folders, and a hook does not appear in a listing.
    """

    def __enter__(self) -> "PathEntries":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __call__(self, wheel: Any, files: list[str], mapping: Mapping[str, str]) -> None:
        entries = f"{ROOT}\n{ROOT / 'spark_connector'}\n"
        wheel.writestr("__editable__.kafkalog.pth", entries.encode())


class EditableWheel(editable_wheel):
    def _select_strategy(self, *arguments: Any, **keywords: Any) -> Any:
        return PathEntries()


def missing(compiler: str | None, include: str) -> str:
    """Names the tools that are missing for compiling against Python's C API; empty: none is.

    `compiler`: the command of the C compiler; `include`: the folder of Python's headers.
    """
    lacking = []
    if not compiler or shutil.which(compiler) is None:
        lacking.append(f"a C compiler ({compiler or 'cc'} is not on PATH; CC names another)")
    if not Path(include, "Python.h").is_file():
        lacking.append(f"Python's C headers ({include}/Python.h does not exist)")
    return " and ".join(lacking)


class BuildExtension(build_ext):
    """Compiles as many C files at once as there are processors."""

    def build_extensions(self) -> None:
        commands = getattr(self.compiler, "compiler_so", None) or [None]
        if lacking := missing(commands[0], sysconfig.get_path("include")):
            sys.exit(
                f"kafkalog's C part cannot be built: {lacking} is missing.  On Debian: apt-get "
                "install gcc libc6-dev python3-dev.  A wheel needs neither: docs/installation.md."
            )
        super().build_extensions()

    def build_extension(self, ext: Any) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: Sequence[str], **keywords: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                found = pool.map(lambda source: compile_some([source], **keywords), sources)
                return [made for objects in found for made in objects]

        self.compiler.compile = compile_all
        try:
            super().build_extension(ext)
        finally:
            self.compiler.compile = compile_some


# One wheel for all later CPythons; free-threaded CPython has no limited API yet.
limited_api = not sysconfig.get_config_var("Py_GIL_DISABLED")

options: dict[str, dict[str, str]] = {}
if limited_api:
    options["bdist_wheel"] = {"py_limited_api": "cp310"}

modules = ["kafkalog/_native/build.py:ffibuilder"]
if (wanted := os.environ.get("KAFKALOG_TEST_EXTENSION")) in ("1", "only"):
    modules = [*(modules if wanted == "1" else []), "kafkalog/_native/build.py:ffibuilder_test"]
    # A wheel takes everything in build/lib*: the test extension must never be there.
    options["build"] = {"build_base": "build/test"}

if os.environ.get("KAFKALOG_NO_EXTENSION") == "1":
    modules = []

setup(
    cffi_modules=modules,
    cmdclass={"build_ext": BuildExtension, "editable_wheel": EditableWheel},
    options=options,
)
