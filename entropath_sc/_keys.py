"""Every AnnData key that this package reads or writes."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_KEY = "entropath"


def _named(form: str) -> property:
    return property(lambda self: form.format(self.key))


@dataclass(frozen=True)
class Keys:
    """The fields that belong to one ``key_added``."""

    key: str = DEFAULT_KEY

    uns = _named("{}")
    # obsm
    coordinates = _named("X_{}")
    scales = _named("{}_scales")
    # obsp
    affinity = _named("{}_affinity")
    lengths = _named("{}_lengths")
    transitions = _named("{}_transitions")
    # obs
    stationary = _named("{}_stationary")
    landmark = _named("{}_landmark")
    pseudotime = _named("{}_pseudotime")
    potential = _named("{}_potential")
    remoteness = _named("{}_remoteness")

    def carried(self, label: str) -> str:
        """The column of a label that `project` carries over."""
        return f"{self.key}_{label}"
