"""`kvscope models` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from kvscope.cli.models import register
from kvscope.engine.model import catalogue
from kvscope.errors import ModelError

ENTRY = catalogue.find_entry("smollm2-135m")


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path))
    app = typer.Typer()
    register(app)
    return app


def put_file(content: bytes) -> None:
    ENTRY.path.parent.mkdir(parents=True)
    ENTRY.path.write_bytes(content)


def test_list_says_what_is_there(app: typer.Typer, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["models", "list"])
    assert result.exit_code == 0
    first, path, last = result.stdout.splitlines()
    assert first.startswith("smollm2-135m   not fetched    98 MB, SmolLM2-135M-Instruct")
    assert path.strip() == str(tmp_path / "models" / "smollm2-135m" / "SmolLM2-135M-Instruct.Q4_1.gguf")
    assert last.startswith("toy            built in")
    rows = [json.loads(line) for line in CliRunner().invoke(app, ["models", "list", "--json"]).stdout.splitlines()]
    assert [(row["name"], row["state"], row["bytes"]) for row in rows] == [
        ("smollm2-135m", "missing", 98_362_432),
        ("toy", "built in", 0),
    ]


def test_verify_names_a_broken_file(app: typer.Typer) -> None:
    put_file(b"half a file")
    result = CliRunner().invoke(app, ["models", "verify"])
    assert result.stdout.startswith("smollm2-135m   broken: fetch it again")
    assert isinstance(result.exception, ModelError)
    assert result.exception.message == "smollm2-135m: missing or broken; run: kvscope models fetch smollm2-135m"


def test_verify_of_nothing_is_no_error_unless_it_was_named(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["models", "verify"]).exit_code == 0
    assert isinstance(CliRunner().invoke(app, ["models", "verify", "smollm2-135m"]).exception, ModelError)


def test_fetch_prints_the_path(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(entry: catalogue.CatalogueEntry, progress: catalogue.FetchProgress) -> Path:
        progress("download", 1, 2)
        progress("unpack", 2, 2)
        return entry.path

    monkeypatch.setattr(catalogue, "fetch", fetch)
    result = CliRunner().invoke(app, ["models", "fetch"])
    assert result.exit_code == 0
    assert result.stdout == f"{ENTRY.path}\n"
