"""`kvscope doctor`: what this machine has of what kvscope needs, where things are, and what a model would run on."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import sqlite3
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

import kvscope
from kvscope.analysis.spans import count
from kvscope.analysis.text import visible
from kvscope.errors import KvscopeError
from kvscope.session.build import ENGINE_EXTRA, missing_packages
from kvscope.session.recordings_folder import recordings_folder
from kvscope.session.runtime_folder import running_engines, runtime_folder

PACKAGES = ("textual", "msgspec", "sqlite-utils", *ENGINE_EXTRA, "triton")

Row = tuple[str, str]
"""What is looked at, and what was found."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False) -> None:
    """Show versions, devices, folders, and what is missing. Exit code 1 where a model cannot be run."""
    rows = [*_versions(), *_machine(), *_models(), *_folders()]
    missing = missing_packages()
    if as_json:
        print(json.dumps({**dict(rows), "missing": missing}, ensure_ascii=False, indent=2))
    else:
        width = max(len(name) for name, _ in rows)
        for name, found in rows:
            print(f"{name:{width}}  {visible(found)}")
        if missing:
            print(f"\nmodels cannot be run, missing: {', '.join(missing)}. pip install 'kvscope[engine]'")
    if missing:
        raise typer.Exit(1)


def _versions() -> Iterator[Row]:
    yield "kvscope", kvscope.__version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield "sqlite", sqlite3.sqlite_version
    for name in PACKAGES:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, "not installed"


def _machine() -> Iterator[Row]:
    yield "platform", f"{platform.platform()}, {os.cpu_count()} cores"
    yield "terminal", f"{os.environ.get('TERM', 'none')}, {'is' if sys.stdout.isatty() else 'output is not'} a terminal"
    if importlib.util.find_spec("torch") is None:
        yield "runs on", "nothing: torch is not installed"
        return
    import torch

    if torch.cuda.is_available():
        name = torch.cuda.get_device_name(0)
        gibibytes = torch.cuda.get_device_properties(0).total_memory / (1 << 30)
        yield "GPU", f"{name}, {gibibytes:.0f} GiB, CUDA {torch.version.cuda}"
        yield "runs on", f"{_gpu_path()} (--device cpu for the CPU)"
    else:
        yield "GPU", "none that torch can use"
        yield "runs on", f"{_cpu_path()}; {count(torch.get_num_threads(), 'thread')}"


def _cpu_path() -> str:
    """Returns how a bfloat16 model is computed on the CPU."""
    import torch

    from kvscope.engine.model.cpu.native_library import unavailable_reason
    from kvscope.engine.model.execution import choose_path

    return str(choose_path(torch.device("cpu"), unavailable_reason()))


def _gpu_path() -> str:
    """Returns how a model is computed on the GPU whose shape the kernels take."""
    import torch

    from kvscope.engine.kernels import unavailable_reason
    from kvscope.engine.model.execution import choose_path

    device = torch.device("cuda")
    return str(choose_path(device, unavailable_reason(device)))


def _config_words() -> str:
    """Returns where the screen's settings are, and what is wrong with them."""
    from kvscope.tui.config import config_path, read_config

    try:
        read_config()
    except KvscopeError as error:
        return error.message
    path = config_path()
    return str(path) if path.exists() else f"{path} (not there: defaults)"


def _models() -> Iterator[Row]:
    if missing_packages():
        return
    from kvscope.engine.model import catalogue

    try:
        yield "models folder", str(catalogue.models_folder())
    except KvscopeError as error:
        yield "models folder", error.message
        return
    for entry in catalogue.CATALOGUE.values():
        try:
            state = catalogue.quick_state(entry)
            hint = "" if state == "ready" else f": kvscope models fetch {entry.name}"
            yield f"model {entry.name}", f"{state}{hint}"
        except KvscopeError as error:
            yield f"model {entry.name}", error.message


def _folders() -> Iterator[Row]:
    yield "config file", _config_words()
    folder = recordings_folder()
    num_recordings = len(list(folder.glob("*.db")))
    yield "recordings folder", f"{folder} ({num_recordings} recordings)"
    try:
        yield "runtime folder", str(runtime_folder())
        yield "running engines", str(len(running_engines()))
    except KvscopeError as error:
        yield "runtime folder", error.message
