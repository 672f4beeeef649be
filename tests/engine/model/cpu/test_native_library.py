"""What is said where there is no library, and that one machine's library is not taken for another's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import torch

from kvscope.engine.model.cpu import native_library
from kvscope.engine.model.cpu.native_library import NoNativeLibraryError


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")


def compile_anew() -> object:
    return native_library.native_library.__wrapped__()


def compiler(tmp_path: Path, text: str) -> str:
    path = tmp_path / "compiler"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\n{text}\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_without_a_compiler_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(NoNativeLibraryError, match=r"^no C compiler \(no-such-compiler\)$"):
        compile_anew()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compiler(tmp_path, "echo 'rows.c:1: error: no such thing' >&2; exit 1")
    monkeypatch.setenv("CC", path)
    with pytest.raises(NoNativeLibraryError, match=f"^{path} failed: rows.c:1: error: no such thing$"):
        compile_anew()
    assert list((tmp_path / "cache" / "native").iterdir()) == []


def test_what_is_no_library_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler(tmp_path, 'for last; do :; done; echo "text" > "$last"'))
    with pytest.raises(NoNativeLibraryError, match=r"^no library in .*native: .*kernels-[0-9a-f]{16}-[0-9a-f]{16}\.so"):
        compile_anew()


def test_a_library_that_is_damaged_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a library ends the process with SIGBUS when it is loaded, instead of raising: it must not come to that."""
    monkeypatch.setenv("CC", compiler(tmp_path, 'for last; do :; done; echo "text" > "$last"; echo made >> made'))
    monkeypatch.chdir(tmp_path)
    native = tmp_path / "cache" / "native"
    for num_made, damage in enumerate(("", "t", "more text than there was"), start=1):
        with pytest.raises(NoNativeLibraryError):
            compile_anew()
        (path,) = native.iterdir()
        assert path.read_text() == "text\n"
        assert len((tmp_path / "made").read_text().split()) == num_made
        path.write_text(damage)
    path.write_text("text\n")
    with pytest.raises(NoNativeLibraryError):
        compile_anew()
    assert len((tmp_path / "made").read_text().split()) == 3


def test_a_compiler_that_makes_nothing_or_is_no_program_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", path := compiler(tmp_path, "exit 0"))
    with pytest.raises(NoNativeLibraryError, match=f"^{path} failed: no message$"):
        compile_anew()
    Path(path).write_bytes(b"\0\1")
    with pytest.raises(NoNativeLibraryError, match="Exec format error"):
        compile_anew()


def test_the_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write there decides what runs here."""
    monkeypatch.setenv("CC", compiler(tmp_path, "exit 1"))
    native = tmp_path / "cache" / "native"
    native.mkdir(parents=True, mode=0o777)
    native.chmod(0o777)
    with pytest.raises(NoNativeLibraryError, match="failed: no message"):
        compile_anew()
    assert stat.S_IMODE(native.stat().st_mode) == 0o700
    monkeypatch.setattr(os, "getuid", lambda: native.stat().st_uid + 1)
    native.chmod(0o777)
    with pytest.raises(NoNativeLibraryError, match="belongs to somebody else, whose code is not loaded"):
        compile_anew()


def test_a_library_is_of_one_source_compiler_cpu_and_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\necho {text}\n")
        path.chmod(0o700)
        return str(path)

    (tmp_path / "other.c").write_text("other")
    first = version("first", "1")
    made = [native_library._fingerprint(first), native_library._fingerprint(version("second", "1"))]
    other = (tmp_path / "other.c",)
    changes: dict[str, object] = {
        "SOURCES": (*native_library.SOURCES[:-1], *other),
        "HEADERS": other,
        "_FLAGS": ("-O1",),
        "_cpu": lambda: b"another",
    }
    for name, value in changes.items():
        with monkeypatch.context() as patch:
            patch.setattr(native_library, name, value)
            made.append(native_library._fingerprint(first))
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0")
        made.append(native_library._fingerprint(first))
    made.append(native_library._fingerprint(version("first", "2")))
    assert len(set(made)) == 8


def test_an_old_cpu_is_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    with pytest.raises(NoNativeLibraryError, match="AVX-512"):
        compile_anew()
