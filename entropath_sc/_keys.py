"""Every AnnData key that this package reads or writes."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_KEY = "entropath"


@dataclass(frozen=True)
class Keys:
    """The fields that belong to one ``key_added``."""

    key: str = DEFAULT_KEY

    @property
    def uns(self) -> str:
        return self.key

    @property
    def affinity(self) -> str:
        return f"{self.key}_affinity"

    @property
    def transitions(self) -> str:
        return f"{self.key}_transitions"

    @property
    def stationary(self) -> str:
        return f"{self.key}_stationary"

    @property
    def coordinates(self) -> str:
        return f"X_{self.key}"

    @property
    def landmark(self) -> str:
        return f"{self.key}_landmark"

    @property
    def pseudotime(self) -> str:
        return f"{self.key}_pseudotime"

    @property
    def potential(self) -> str:
        return f"{self.key}_potential"

    @property
    def remoteness(self) -> str:
        return f"{self.key}_remoteness"

    def carried(self, label: str) -> str:
        return f"{self.key}_{label}"
