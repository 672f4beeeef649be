"""Which key does what: the keys of every action, by default and as a config file has them.

An action is a binding's id, such as `time.back`. Where a place gives a common key a meaning of its own (`n` goes from
finding to finding in the statistics), that binding is a variant of the common action and has its keys. Knows no place:
`kvscope.tui.actions` gathers them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from textual.binding import Binding, Keymap

from kvscope.tui.key_names import character_key, shown_key, shown_keys

NO_KEY = "no-key"
"""Stands in Textual's keymap for an action without a key: an empty list would leave its default."""

FIXED = {"look.open": "enter", "leave.up": "escape"}
"""Keys that an action keeps whatever a config file says: no place is without a way in and out."""

RESERVED = {"ctrl+c": "leaves", "ctrl+q": "leaves", "ctrl+p": "opens the palette"}
"""Keys that no action may have."""


@dataclass(frozen=True, slots=True)
class Action:
    """Something that has a key."""

    name: str
    keys: tuple[str, ...]
    """By default."""
    what: str
    """In a few words, as in the help."""
    variant_of: tuple[str, ...] = ()
    """The common actions whose keys this one has, in a place of its own."""

    @property
    def commons(self) -> tuple[str, ...]:
        """The actions by whose names its keys are configured; an empty one where they cannot be."""
        return self.variant_of or (self.name,)


@dataclass(frozen=True)
class Keys:
    """The keys as they are: defaults, and what is configured instead."""

    actions: Mapping[str, Action]
    configured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By the names of common actions, in Textual's names of keys."""

    def of(self, action: str) -> tuple[str, ...]:
        """Returns the keys of an action; those of its default where it is unknown."""
        known = self.actions.get(action)
        if known is None:
            return ()
        if known.variant_of:
            return tuple(key for common in known.variant_of for key in self.of(common))
        keys = self.configured.get(action)
        if keys is None:
            return known.keys
        fixed = FIXED.get(action)
        return keys if fixed is None or fixed in keys else (*keys, fixed)

    def shown(self, default: str) -> str:
        """Returns how the key that is `default` by default is written now, such as in a footer or a hint.

        Several keys are separated by blanks; an arrow or a word that is no key of an action stays as it is.
        """
        return " ".join(self._shown_one(one) for one in default.split(" "))

    def filled(self, text: str) -> str:
        """Returns a text with the keys that stand in it by their defaults, such as `{n}`, as they are written now."""
        return re.sub(r"\{([^{}]+)\}", lambda found: self.shown(found[1]), text)

    def _shown_one(self, default: str) -> str:
        action = self._by_shown_default.get(default)
        keys = () if action is None else self.of(action)
        if action is None or keys == self.actions[action].keys:
            return default
        return shown_key(keys[0]) if keys else "—"

    @cached_property
    def _by_shown_default(self) -> dict[str, str]:
        return {
            shown_key(key): action.name
            for action in self.actions.values()
            if not action.variant_of
            for key in action.keys
        } | {"⏎": "look.open"}

    def all_shown(self, binding: Binding) -> str:
        """Returns all keys of a binding as they are written on the screen."""
        return shown_keys(self.now(binding))

    def now(self, binding: Binding) -> tuple[str, ...]:
        """Returns the keys of a binding, which may differ from those that its action has elsewhere."""
        action = self.actions.get(binding.id or "")
        is_default = action is None or self.of(action.name) == action.keys
        return named_keys(binding) if action is None or is_default else self.of(action.name)

    def is_of(self, key: str, action: str) -> bool:
        """True where the key does this; for places that hear keys without bindings."""
        return key in self.of(action)

    @cached_property
    def textual(self) -> Keymap:
        """Returns what differs from the defaults, as Textual takes it."""
        return {
            name: ",".join(self.of(name)) or NO_KEY
            for name, action in self.actions.items()
            if self.of(name) != action.keys
        }


def named_keys(binding: Binding) -> tuple[str, ...]:
    """Returns the keys of a binding by Textual's names."""
    return tuple(character_key(key) if len(key) == 1 else key for key in binding.key.split(","))


@dataclass(frozen=True, slots=True)
class Clash:
    """One key for two actions in one place."""

    key: str
    actions: tuple[Action, Action]
    """In the order of the place's keys."""
    place: str


def clashes(keys: Keys, places: Mapping[str, Sequence[Action]]) -> list[Clash]:
    """Returns every key that does two things in a place, as none does by default."""
    found: list[Clash] = []
    for place, actions in places.items():
        owners: dict[str, Action] = {}
        for action in actions:
            for key in keys.of(action.name) if action.name else action.keys:
                other = owners.setdefault(key, action)
                if other is not action and set(other.commons).isdisjoint(action.commons):
                    found.append(Clash(key, (other, action), place))
    return found
