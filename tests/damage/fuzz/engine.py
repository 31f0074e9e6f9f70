"""Builds and runs the fuzz targets in tests/damage/fuzz/targets.

Each is a separate program: clang's libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer,
the C sources of kafkalog, and the harness's own table of system calls.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "kafkalog" / "_native"
HERE = Path(__file__).resolve().parent
SOURCES = HERE / "targets"
DICTIONARY = HERE / "kafka.dict"
BUILD = ROOT / "build" / "fuzz"
FLAGS = [
    "-std=c11", "-D_GNU_SOURCE", "-gline-tables-only", "-O1", "-fno-omit-frame-pointer",
    "-Wall", "-Wextra", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-pthread",
    f"-I{NATIVE}",
]  # fmt: skip
OWN_TABLE = {"io.c", "io_test.c"}
"""Sources that support.c replaces."""


class Target(NamedTuple):
    """A program: its own source and the shared ones that it needs."""

    name: str
    parts: tuple[str, ...] = ()
    prefix_bytes: int = 0
    """Bytes of choices before the batches in an input."""
    max_bytes: int = 4096
    native: tuple[str, ...] = ()
    """The product's sources, in addition to those of base, batch, log, scan and clean."""
    malloc_mb: int = 64
    """A larger allocation fails: nothing may be allocated just because the input claims it."""


_MENDED = "mutate_batches"
_FAST_PATH = (
    "replica/followers", "replica/quota", "replica/replica", "replica/watch", "plane/admit",
    "plane/buckets", "plane/codes", "plane/cold", "plane/data", "plane/fetch",
    "plane/fetch_answer", "plane/fetch_parse", "plane/fetch_read", "plane/fetchset",
    "plane/leaders", "plane/plane", "plane/produce", "plane/produce_answer", "plane/racks",
    "plane/rules", "plane/session", "plane/topics", "net/repeat",
)  # fmt: skip
_CONNECTION = (
    "net/authentication", "net/conn", "net/exchange", "net/finished", "net/frame", "net/openssl",
    "net/pause", "net/peers", "net/pool", "net/post", "net/repeat", "net/response", "net/shake",
    "net/stream", "net/threads", "net/timers", "net/times", "net/tls", "net/tls_stream", "net/up",
)  # fmt: skip
_TLS = ("net/openssl", "net/stream", "net/tls", "net/tls_stream")
TARGETS = {
    target.name: target
    for target in (
        Target("batch", (_MENDED,)),
        Target("records", max_bytes=1024),
        Target("columns", max_bytes=1024),
        Target("index", max_bytes=1024),
        Target("aborts", max_bytes=512),
        Target("snapshot", max_bytes=1024),
        Target("epochs", max_bytes=512),
        Target("sidecar", max_bytes=512),
        Target("walk", (_MENDED,)),
        Target("names", max_bytes=256),
        Target("segment", (_MENDED, "logs"), 64, 2048),
        Target("append", (_MENDED, "logs"), 32, 2048),
        Target("log", ("logs",), max_bytes=1024),
        Target("request", ("logs",), max_bytes=2048, native=_FAST_PATH),
        Target("conn", max_bytes=8192, native=_CONNECTION),
        Target("login", max_bytes=8192, native=_CONNECTION),
        Target("tls", max_bytes=4096, native=_TLS),
    )
}
CANARY = Target("canary", (_MENDED,), max_bytes=512)


class Result(NamedTuple):
    """The result of a run: nothing was found, unless `crash`."""

    executions: int
    coverage: int
    crash: Path | None
    """The input that crashed the program, kept under build/fuzz/found."""
    report: str
    """The report of the sanitizers and the harness."""


@cache
def compiler() -> str | None:
    """A clang that can link a fuzz target; None if there is none."""
    probe = b"#include <stddef.h>\nint LLVMFuzzerTestOneInput(const char *p, size_t n);\n"
    probe += b"int LLVMFuzzerTestOneInput(const char *p, size_t n) { return p && n > 9 ? 0 : 0; }\n"
    newest = sorted(Path("/usr/bin").glob("clang-[0-9]*"), key=lambda p: int(p.name[6:] or 0))
    for found in ("clang", *(path.name for path in reversed(newest))):
        if not shutil.which(found):
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [found, "-fsanitize=fuzzer,address", "-xc", "-", "-o", f"{folder}/probe"]
            if subprocess.run(command, input=probe, capture_output=True).returncode == 0:
                return found
    return None


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def _fingerprint(paths: Iterable[Path], *more: str) -> str:
    digest = hashlib.sha256(repr((compiler(), FLAGS, more)).encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _once(path: Path, fingerprint: str, command: list[str]) -> None:
    """Run the command, whose output is `path`, unless `path` has the same fingerprint already."""
    stamp = path.with_suffix(".made")
    if path.exists() and stamp.exists() and stamp.read_text() == fingerprint:
        return
    _run(command)
    stamp.write_text(fingerprint)


def _shared(target: Target) -> list[Path]:
    """Sources that are the same in each program: they do not use its prefix."""
    names = ("support", "batches", *(part for part in target.parts if part != _MENDED))
    own = [SOURCES / f"{name}.c" for name in names]
    return own + [NATIVE / f"{name}.c" for name in target.native]


def build(targets: Iterable[Target]) -> dict[str, Path]:
    """The program of each target, by its name; unchanged ones are not built again."""
    BUILD.mkdir(parents=True, exist_ok=True)
    clang = compiler()
    assert clang is not None
    headers = sorted(NATIVE.rglob("*.h"))
    own_headers = sorted(SOURCES.glob("*.h"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def compiled(source: Path) -> Path:
            out = BUILD / f"{source.parent.name}-{source.stem}.o"
            command = [clang, *FLAGS, "-fsanitize=fuzzer-no-link", "-c", str(source)]
            made = _fingerprint([source, *headers, *own_headers])
            _once(out, made, [*command, "-o", str(out)])
            return out

        product = [
            path
            for part in ("base", "batch", "segment", "log", "scan", "clean")
            for path in sorted((NATIVE / part).glob("*.c"))
            if path.name not in OWN_TABLE
        ]
        objects = list(pool.map(compiled, product))
        wanted = list(targets)
        shared = dict.fromkeys(path for target in wanted for path in _shared(target))
        made_of = dict(zip(shared, pool.map(compiled, shared), strict=True))

        def linked(target: Target) -> tuple[str, Path]:
            names = (target.name, *(part for part in target.parts if part == _MENDED))
            sources = [SOURCES / f"{name}.c" for name in names]
            parts = [made_of[path] for path in _shared(target)]
            out = BUILD / target.name
            command = [
                clang, *FLAGS, "-fsanitize=fuzzer", f"-DFUZZ_PREFIX_BYTES={target.prefix_bytes}",
                *map(str, [*sources, *parts, *objects]), "-o", str(out),
            ]  # fmt: skip
            every = [*sources, *headers, *own_headers, *parts, *objects]
            _once(out, _fingerprint(every, repr(target)), command)
            return target.name, out

        return dict(pool.map(linked, wanted))


def run(
    target: Target,
    program: Path,
    corpora: Iterable[Path],
    seed: int = 1,
    executions: int = 0,
    seconds: float = 0,
) -> Result:
    """Run every input of the corpora once, then new ones: `executions` in all, or for `seconds`.

    New inputs with new coverage go into the first corpus.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory_folder()) as folder:
        artifacts = Path(folder) / "found"
        artifacts.mkdir()
        limit = [f"-max_total_time={seconds:.0f}"] if seconds >= 1 else [f"-runs={executions}"]
        command = [
            str(program), *limit, f"-max_len={target.max_bytes}", f"-seed={seed}", "-timeout=20",
            f"-malloc_limit_mb={target.malloc_mb}", "-rss_limit_mb=2048", "-print_final_stats=1",
            f"-dict={DICTIONARY}", f"-artifact_prefix={artifacts}/", *map(str, corpora),
        ]  # fmt: skip
        environment = {
            **os.environ,
            "TMPDIR": folder,
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            "ASAN_OPTIONS": "allocator_may_return_null=1",
            "LLVM_SYMBOLIZER_PATH": shutil.which("llvm-symbolizer-14") or "",
        }
        done = subprocess.run(
            command, capture_output=True, env=environment, timeout=seconds * 2 + 300
        )
        output = (done.stdout + done.stderr).decode(errors="replace")
        crash = _keep(target, sorted(artifacts.iterdir()))
    if done.returncode and crash is None:
        raise RuntimeError(f"{target.name} ended with {done.returncode}\n{output[-4000:]}")
    executed = re.findall(r"number_of_executed_units: (\d+)", output)
    coverage = re.findall(r" cov: (\d+)", output)
    return Result(
        int(executed[-1]) if executed else 0,
        int(coverage[-1]) if coverage else 0,
        crash,
        _report(output) if crash else "",
    )


def _keep(target: Target, artifacts: list[Path]) -> Path | None:
    if not artifacts:
        return None
    found = BUILD / "found"
    found.mkdir(exist_ok=True)
    return shutil.copy(artifacts[0], found / f"{target.name}-{artifacts[0].name}")


def _report(output: str) -> str:
    """The lines from the first failure on, without the stack frames of the fuzzer."""
    lines = output.splitlines()
    begin = re.compile(r"^fuzz: |runtime error|ERROR: |broken promise")
    first = next((i for i, line in enumerate(lines) if begin.search(line)), 0)
    kept = [line for line in lines[first:] if not re.search(r"fuzzer::|libc|^    @", line)]
    return "\n".join(line[:300] for line in kept[:40])


def memory_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
