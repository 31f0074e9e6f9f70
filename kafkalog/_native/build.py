"""Builds the C part: called by setup.py's cffi_modules, never at run time.

`kafkalog.h` and what it includes, `columns.h` and `server.h`, are the only declaration: the text
between their markers is what cffi reads.
Paths are relative to the repository's root, as setuptools requires.
"""

import os
import sysconfig
from pathlib import Path

from cffi import FFI

NATIVE = Path("kafkalog/_native")

# cffi's generated code converts integers without casts, which our own never does.
PREAMBLE = """
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "kafkalog.h"
#include "python/capsule.h"
#include "python/made.h"
#include "python/intake.h"
"""

# Not in kafkalog.h: what is made per record (python/direct.h, intake.h, made.h), and what the
# Arrow PyCapsule interface wants: see python/capsule.h, and kafkalog.log.scan.arrow, which defines
# the callbacks of a stream in Python.
ARROW = """
void *kl_capsule_memory(size_t bytes);
int kl_direct_install(const char *module_name);
int kl_made_install(const char *module_name);
void kl_capsule_free_schema(void *capsule);
void kl_capsule_free_array(void *capsule);
void kl_capsule_free_stream(void *capsule);
void kl_stream_free(struct ArrowArrayStream *stream);
extern "Python" {
    int kl_stream_schema(struct ArrowArrayStream *, struct ArrowSchema *);
    int kl_stream_next(struct ArrowArrayStream *, struct ArrowArray *);
    const char *kl_stream_error(struct ArrowArrayStream *);
    void kl_stream_release(struct ArrowArrayStream *);
}
"""


def declarations(header: str, marker: str) -> str:
    """The text of a header between `/* <marker> begin */` and `/* <marker> end */`."""
    text = (NATIVE / header).read_text(encoding="ascii")
    begin, end = f"/* {marker} begin */", f"/* {marker} end */"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{header}: wanted one {begin} and one {end}")
    return text.partition(begin)[2].partition(end)[0]


def portable() -> bool:
    """True if the second form of base/system.h is wanted where there is the first."""
    return os.environ.get("KAFKALOG_PORTABLE") == "1"


def compile_flags() -> list[str]:
    """Without -march: a wheel is built on one machine and runs on another."""
    flags = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-UNDEBUG",  # setuptools defines it, which would silently remove every assertion
        "-fvisibility=hidden",
        # The limited API of an old Python lacks some names of a newer one: a call of an undeclared
        # name would have its pointers cut to 32 bits.
        "-Werror=implicit-function-declaration",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-fstack-protector-strong",
        "-U_FORTIFY_SOURCE",
    ]
    if sanitizers := os.environ.get("KAFKALOG_SANITIZE"):
        flags += ["-g", "-O1", "-fno-omit-frame-pointer", f"-fsanitize={sanitizers}"]
    else:
        flags += ["-O2", "-D_FORTIFY_SOURCE=2"]
    if portable():
        flags.append("-DKAFKALOG_PORTABLE")
    if os.environ.get("KAFKALOG_WERROR") == "1":
        flags.append("-Werror")
    return flags


def link_flags() -> list[str]:
    flags = ["-pthread"]
    if sysconfig.get_platform().startswith("linux"):
        flags += ["-Wl,-z,relro,-z,now", "-ldl"]  # dlopen: in libc since glibc 2.34
    if sanitizers := os.environ.get("KAFKALOG_SANITIZE"):
        flags.append(f"-fsanitize={sanitizers}")
    return flags


def builder(name: str, test: bool) -> FFI:
    """An extension of all C sources; with `test`, failpoints and the hooked I/O table."""
    ffi = FFI()
    headers = ("kafkalog.h", "columns.h", "server.h")
    public = "".join(declarations(header, "cffi:") for header in headers)
    hooks = declarations("kafkalog.h", "cffi: test") if test else ""
    ffi.cdef(public + hooks + ARROW)
    parts = (
        "base",
        "batch",
        "segment",
        "log",
        "scan",
        "clean",
        "replica",
        "net",
        "plane",
        "server",
    )
    sources = sorted(str(path) for part in parts for path in (NATIVE / part).glob("*.c"))
    ffi.set_source(
        f"kafkalog._native.{name}",
        PREAMBLE,
        sources=sources,
        depends=sorted(str(path) for path in NATIVE.rglob("*.h")),
        include_dirs=[str(NATIVE)],
        define_macros=[("KL_TEST", "1")] if test else [],
        extra_compile_args=compile_flags(),
        extra_link_args=link_flags(),
    )
    return ffi


def ffibuilder() -> FFI:
    """The extension for users."""
    return builder("_kl", test=False)


def ffibuilder_test() -> FFI:
    """The same sources with the hooks that tests need."""
    return builder("_kl_test", test=True)
