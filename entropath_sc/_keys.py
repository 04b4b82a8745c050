"""Every AnnData key that this package reads or writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DEFAULT_KEY = "entropath"

# Which fields each step writes, as names of properties below.
STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "merw_graph": {
        "obs": ("stationary",),
        "obsm": ("scales",),
        "obsp": ("affinity", "lengths", "direction", "transitions"),
    },
    "embedding": {"obs": ("landmark",), "obsm": ("coordinates",)},
    "pseudotime": {"obs": ("pseudotime", "potential")},
    "terminal_states": {"obs": ("terminal", "branch", "position", "at_branch_point"), "obsm": ("passages",)},
    "fates": {"obs": ("plasticity",), "obsm": ("fates", "membership", "passages"), "obsp": ("forward",)},
    "stability": {"obs": ("pseudotime_sd", "fates_sd", "same_branch", "coordinates_sd")},
    "trends": {},
    "drivers": {},
    "project": {
        "obs": ("pseudotime", "potential", "remoteness", "plasticity"),
        "obsm": ("coordinates", "fates", "membership", "passages"),
    },
}

# The parts of `uns` of steps that follow from others, and what follows from each step: it goes when that is done anew.
PARTS = {
    "terminal_states": ("terminal_states", "tree"),
    "fates": ("fates",),
    "trends": ("trends",),
    "drivers": ("drivers", "versus"),
    "stability": ("stability",),
}
FOLLOWING = {
    "pseudotime": ("terminal_states", "fates", "trends", "drivers", "stability"),
    "terminal_states": ("fates", "trends", "drivers", "stability"),
    "fates": ("trends", "drivers", "stability"),
}


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
    fates = _named("{}_fates")
    membership = _named("{}_membership")
    passages = _named("{}_passages")
    # obsp
    forward = _named("{}_forward")
    affinity = _named("{}_affinity")
    lengths = _named("{}_lengths")
    direction = _named("{}_direction")
    transitions = _named("{}_transitions")
    # obs
    stationary = _named("{}_stationary")
    landmark = _named("{}_landmark")
    pseudotime = _named("{}_pseudotime")
    potential = _named("{}_potential")
    remoteness = _named("{}_remoteness")
    terminal = _named("{}_terminal")
    branch = _named("{}_branch")
    position = _named("{}_branch_position")
    at_branch_point = _named("{}_at_branch_point")
    plasticity = _named("{}_plasticity")
    pseudotime_sd = _named("{}_pseudotime_sd")
    fates_sd = _named("{}_fates_sd")
    same_branch = _named("{}_same_branch")
    coordinates_sd = _named("{}_coordinates_sd")

    def trends(self, state: str) -> str:
        """The field of `varm` with the trends of a state, whose name can be part of a key."""
        return f"{self.key}_trends_{state}"

    def carried(self, label: str) -> str:
        """The column of a label that `project` carries over."""
        return f"{self.key}_{label}"

    def fields(self, steps: Iterable[str], labels: Iterable[str] = ()) -> set[tuple[str, str]]:
        """The place and the name of all fields that these steps write, and of labels that `project` carries over."""
        written = [(place, name) for step in steps for place, names in STEPS[step].items() for name in names]
        carried = [self.carried(label) for label in labels]
        own = {(place, getattr(self, name)) for place, name in written}
        return own | {("obs", name + end) for name in carried for end in ("", "_share")}
