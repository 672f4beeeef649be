"""Everything that has a key: gathered from the bindings of all places and of the app itself."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen

from kvscope.tui import screens
from kvscope.tui.keymap import Action, named_keys
from kvscope.tui.screens.time_screen import TimeScreen
from kvscope.tui.widgets.prompt_line import PROMPT_BINDINGS

APP_BINDINGS: list[BindingType] = [
    Binding("ctrl+c", "interrupt", "quit", show=False, priority=True, id="leave.interrupt"),
    Binding("ctrl+g", "app.picture", "picture of the screen (SVG)", show=False, priority=True, id="keep.screenshot"),
]
"""Keys of every place, and of what opens above it; first in order."""

NOT_CONFIGURED = frozenset({"leave.interrupt"})

OPENING_ACTIONS = (
    *("time.goto", "events.search", "engine.prompt", "keep.bookmark", "keep.breakpoints"),
    *("look.what_if", "look.sweep"),
)
"""What opens a line to type: the keys that follow belong into it."""


def app_bindings() -> list[Binding]:
    """Returns the app's own keys that are listed with those of a place."""
    return [binding for binding in APP_BINDINGS if isinstance(binding, Binding) and binding.id not in NOT_CONFIGURED]


MAIN = "main"
PROMPT = "prompt"


@cache
def places() -> dict[str, list[Action]]:
    """Returns every place by its name, the main one first, with what has a key there: common actions, variants.

    The prompt line is one too: what has a key in it is heard nowhere else.
    """
    common = [_action(binding, []) for binding in app_bindings()]
    found = {_place_name(kind): [*common, *_actions_of(kind)] for kind in _kinds()}
    return found | {PROMPT: [*common, *(_action(binding, []) for binding in PROMPT_BINDINGS)]}


@cache
def actions() -> dict[str, Action]:
    """Returns all actions by name, in the order in which they are told; variants too."""
    found: dict[str, Action] = {}
    for told in places().values():
        for action in told:
            if action.name:
                found.setdefault(action.name, action)
    return found


def _kinds() -> list[type[Screen[Any]]]:
    for module in pkgutil.iter_modules(screens.__path__):
        importlib.import_module(f"{screens.__name__}.{module.name}")
    found = [*_subclasses(TimeScreen), *(kind for kind in _subclasses(ModalScreen) if _is_ours(kind))]
    leaves = [kind for kind in found if not kind.__subclasses__()]
    return sorted(leaves, key=lambda kind: (_place_name(kind) != MAIN, _place_name(kind)))


def _subclasses(kind: type[Screen[Any]]) -> Iterator[type[Screen[Any]]]:
    for below in kind.__subclasses__():
        yield below
        yield from _subclasses(below)


def _is_ours(kind: type[object]) -> bool:
    return kind.__module__.startswith(f"{screens.__name__}.")


def _place_name(kind: type[object]) -> str:
    words = re.findall("[A-Z][a-z]*", re.sub("(Screen|Modal)$", "", kind.__name__))
    return " ".join(words).lower()


def _actions_of(kind: type[Screen[Any]]) -> list[Action]:
    """Returns the actions of a place, the common ones first, but where the place has another meaning for their keys."""
    ours = [base for base in reversed(kind.__mro__) if _is_ours(base)]
    found: list[Action] = []
    for base in ours:
        own = [binding for binding in base.__dict__.get("BINDINGS", []) if isinstance(binding, Binding)]
        for binding in own:
            action = _action(binding, found)
            found = [other for other in found if not set(other.keys) & set(action.keys)] + [action]
    return [action for action in found if action.name or action.what]


def _action(binding: Binding, below: list[Action]) -> Action:
    """Returns the action of a binding; one with the very keys of a common action, or of several, is their variant."""
    keys = named_keys(binding)
    shadowed = [other for other in below if other.name and set(other.keys) <= set(keys)]
    variant_of: tuple[str, ...] = ()
    if binding.id and {key for other in shadowed for key in other.keys} == set(keys):
        variant_of = tuple(name for other in shadowed for name in other.commons if name != binding.id)
    return Action(binding.id or "", keys, binding.description, variant_of)
