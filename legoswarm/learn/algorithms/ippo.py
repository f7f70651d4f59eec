"""IPPO: MAPPO without a central critic."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from legoswarm.learn.algorithms.algorithm import ALGORITHMS
from legoswarm.learn.algorithms.mappo import Mappo


@ALGORITHMS.register
@dataclasses.dataclass(frozen=True)
class Ippo(Mappo):
    """MAPPO with critics that know no more than their agent sees."""

    name: ClassVar[str] = "ippo"
    central: ClassVar[bool] = False
