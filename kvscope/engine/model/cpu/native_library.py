"""Compiles the C kernels of this folder for this very CPU, once, and loads them.

The library lies in the cache folder under a name that says what it was made of (source, compiler, flags and CPU) and
what is in it: one that is damaged would end the process instead of raising, so it is made anew. What others could have
put there is not loaded. Without a compiler there is none, and torch's own operations do the work.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

from kvscope.engine.model.catalogue import models_folder

SOURCES = tuple(Path(__file__).with_name(name) for name in ("rows.c", "attention.c"))
HEADERS = (Path(__file__).with_name("vectors.h"),)
# Pairs of bfloat16 are read as one number of 32 bits, which strict aliasing would not have to see.
_FLAGS = ("-O3", "-march=native", "-fno-strict-aliasing", "-fPIC", "-fopenmp", "-shared")
_COMPILERS = ("cc", "gcc", "clang")
_MAX_COMPILE_SECONDS = 60

_POINTER, _LONG, _FLOAT, _INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_float, ctypes.c_int
_ARGUMENTS = {
    "rms_norm": [_POINTER] * 4 + [_LONG] * 2 + [_FLOAT, _INT],
    "silu_and_mul": [_POINTER] * 2 + [_LONG] * 2 + [_INT],
    "rotate_and_cache": [_POINTER] * 9 + [_LONG] * 5 + [_FLOAT, _INT],
    "paged_attention": [_POINTER] * 8 + [_LONG] * 5 + [_FLOAT, _INT],
}


class NoNativeLibraryError(Exception):
    """There is none; the message says why, in words for a person."""


@functools.cache
def unavailable_reason() -> str | None:
    """Returns why there is no library on this machine, None where there is one. Compiles it where it was not yet."""
    try:
        native_library()
    except NoNativeLibraryError as error:
        return str(error)
    return None


@functools.cache
def native_library() -> ctypes.CDLL:
    """Returns the library. Raises `NoNativeLibraryError` where it cannot be compiled or loaded."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        raise NoNativeLibraryError("the CPU has no AVX-512, without which torch's kernels are quicker")
    compiler = _find_compiler()
    folder = models_folder().parent / "native"
    try:
        stem = f"kernels-{_fingerprint(compiler)}"
        _make_private(folder)
        path = _whole_library(folder, stem) or _compile(compiler, folder, stem)
        library = ctypes.CDLL(str(path))
        for name, arguments in _ARGUMENTS.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, None
    except (OSError, AttributeError) as error:  # the second where a function is missing
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise NoNativeLibraryError(f"no library in {folder}: {why}") from error
    except subprocess.TimeoutExpired as error:
        raise NoNativeLibraryError(f"{compiler} took more than {error.timeout:.0f} s") from error
    return library


def _make_private(folder: Path) -> None:
    """Makes the folder the user's alone. Raises `NoNativeLibraryError` where others could put a library there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = folder.stat()
    if info.st_uid == os.getuid():
        if info.st_mode & 0o022:
            folder.chmod(0o700)
    elif info.st_uid or info.st_mode & 0o022:
        raise NoNativeLibraryError(f"{folder} belongs to somebody else, whose code is not loaded")


def _whole_library(folder: Path, stem: str) -> Path | None:
    """Returns a library that was made of the same and still is what was written, None where there is none."""
    paths = sorted(folder.glob(f"{stem}-*.so"))
    return next((path for path in paths if path.is_file() and path.name == _name(stem, path.read_bytes())), None)


def _name(stem: str, content: bytes) -> str:
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _find_compiler() -> str:
    asked = os.environ.get("CC")
    for name in (asked,) if asked else _COMPILERS:
        if found := shutil.which(name):
            return found
    raise NoNativeLibraryError(f"no C compiler ({asked or ', '.join(_COMPILERS)})")


def _fingerprint(compiler: str) -> str:
    asked = [compiler, "--version"]
    version = subprocess.run(asked, capture_output=True, timeout=_MAX_COMPILE_SECONDS, check=False).stdout
    parts = (
        *(path.read_bytes() for path in (*HEADERS, *SOURCES)),
        compiler.encode(),
        version,
        " ".join(_FLAGS).encode(),
        _cpu(),
        torch.__version__.encode(),
    )
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _cpu() -> bytes:
    """What the compiler's choice of instructions follows from: a cache folder may be shared between machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        return platform.processor().encode()
    kept = (b"model name", b"cpu family", b"model\t", b"flags", b"Features", b"CPU part")
    return b"\n".join(dict.fromkeys(line for line in lines if line.startswith(kept)))


def _compile(compiler: str, folder: Path, stem: str) -> Path:
    """Returns the new library. It is written under a name of its own first: several engines may start at once."""
    with tempfile.TemporaryDirectory(dir=folder) as workshop:
        unfinished = Path(workshop) / "kernels.so"
        command = [compiler, *_FLAGS, *map(str, SOURCES), *_openmp_of_torch(), "-o", str(unfinished)]
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_MAX_COMPILE_SECONDS, check=False
        )
        if done.returncode or not unfinished.exists():
            first_error = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
            raise NoNativeLibraryError(f"{compiler} failed: {first_error}")
        path = folder / _name(stem, unfinished.read_bytes())
        unfinished.replace(path)
    return path


def _openmp_of_torch() -> list[str]:
    """Torch's OpenMP, so that both use one pool of threads: two would wait for each other by spinning."""
    return [str(path) for path in (Path(torch.__file__).parent / "lib").glob("libgomp*.so*")][:1]
