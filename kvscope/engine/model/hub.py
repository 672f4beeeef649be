"""Models by their hub id, where `huggingface_hub` is installed and a hub or its local cache has them."""

from __future__ import annotations

import re
from pathlib import Path

from kvscope.errors import ModelError

_FILES = ["*.safetensors", "*.json", "*.jinja"]


def is_hub_id(name: str) -> bool:
    """Returns whether `name` looks like `owner/name`."""
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]*\w", name) is not None and not name.endswith(".gguf")


def snapshot_folder(hub_id: str) -> Path:
    """Returns the folder of a hub's model, fetched where it is not in the hub's local cache.

    Raises:
        ModelError: there is no such model, or no way to it.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise ModelError(
            f"{hub_id}: no such folder, and for a hub id huggingface_hub is needed: pip install huggingface_hub"
        ) from None
    try:
        return Path(huggingface_hub.snapshot_download(hub_id, allow_patterns=_FILES))
    except Exception as error:
        # The library's errors differ from version to version; all of them mean that the model cannot be had.
        reason = " ".join(str(error).split())[:200]
        raise ModelError(
            f"{hub_id}: no such folder, and the hub has no such model or cannot be reached "
            f"({type(error).__name__}: {reason}); fetch the model's folder elsewhere and give its path"
        ) from error
