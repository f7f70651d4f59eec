"""What tools/recompute.py works with: where rows come from, the paper's numbers, the files, and statistics."""

import json
import math
import re

import numpy as np
from scipy import stats

NAMES = {"lego": "LEGO-MAPPO", "segnn": "SEGNN", "mappo-gnn": "MAPPO-GNN", "mappo-local": "MAPPO-local", "pic": "PIC",
         "mappo": "MAPPO"}  # fmt: skip
FILES = {name: file for file, name in NAMES.items()}
PAPER = {  # means of the paper's tables II to IV, and seconds of table I
    "generalization": {"lego": "-10.6 -23.8 -44.0 -79.8 -114.6", "pic": "-9.8 -42.7 -130.8 -191.4 -297.3",
                       "segnn": "-47.9 -148.2 -84.3 -282.9 -859.2", "mappo": "-9.2 -43.4 -135.0 -216.3 -378.0"},
    "curriculum": {"mappo": "-381.2 -430.7 -508.3", "segnn-scl": "-833.1 -1184.4 -1899.6", "segnn-curr": "-186.1",
                   "lego": "-196.5 -265.5 -360.3", "lego-scl": "-113.4 -170.8 -239.7",
                   "lego-curr": "-99.6 -145.2 -150.7"},
    "ood": {"lego": "-21.4 -20.2 -22.03", "mappo-local": "-39.3 -40.3 -42.1", "segnn": "-45.3 -49.2 -44.7",
            "mappo": "-50.7 -72.7 -70.9"},
    "run-time": {"lego": "377.6 997.8", "mappo": "277.9 814.2", "pic": "300.5 1257.3", "segnn": "65520 72720"},
}  # fmt: skip
PLACES = {"generalization": "23456", "curriculum": "678", "ood": ("left", "right", "uniform"), "run-time": "36"}
PUBLISHED, JOINT = "beyond/paper-setup", "algorithms/lego-joint-masac-4"
OWN = ("SEGNN", "MAPPO-GNN", "MAPPO-local", "PIC", "MAPPO")
SOURCES = {  # the file of each row; {} is the column
    "generalization": {
        "LEGO-MASAC, joint encoder (critics of joint actions)": JOINT,
        "LEGO-MAPPO (pair critic)": "generalization/lego",
        "LEGO-MAPPO (paper's critic)": "beyond/paper-critic-4",
        "LEGO-MAPPO (as published)": PUBLISHED,
        "SEGNN (own critic)": "generalization/segnn",
        "PIC (own critic), trained for each size": "generalization/pic-{}",
        "MAPPO (own critic), trained for each size": "generalization/mappo-{}",
    },
    "trained": {
        "LEGO-MAPPO (pair critic)": "spread-{}/lego",
        "LEGO-MAPPO (paper's critic)": "beyond/paper-critic-{}",
        "LEGO-MAPPO (as published)": "published-{}",
        **{f"{name} (own critic)": f"spread-{{}}/{FILES[name]}" for name in OWN},
        **{f"{name} (pair critic)": f"beyond/{FILES[name]}-pairs" for name in OWN},
    },
    "algorithms": {
        "LEGO-MAPPO (pair critic)": "spread-{}/lego",
        "LEGO-MASAC (critics of joint actions)": "algorithms/lego-masac",
        "MAPPO (own critic)": "spread-{}/mappo",
        "MAPPO-MASAC (critics of joint actions)": "algorithms/mappo-masac",
    },
    "algorithms-sizes": {
        "LEGO-MASAC, joint encoder (critics of joint actions), trained with two to eight": JOINT.replace("4", "mixed"),
        "LEGO-MASAC, joint encoder (critics of joint actions), trained with four": JOINT,
        "LEGO-MAPPO (pair critic), trained with four": "beyond/large-teams",
    },
    "ood": {
        "LEGO-MAPPO (pair critic)": "ood/lego",
        **{f"{name} (own critic)": f"ood/{FILES[name]}" for name in OWN},
    },
    "ood-landmarks": {
        "LEGO-MAPPO (pair critic)": "ood/lego-landmarks",
        **{f"{name} (own critic)": f"ood/{FILES[name]}-landmarks" for name in OWN},
    },
    "curriculum": {
        "LEGO-MAPPO (pair critic), from scratch": "curriculum/lego-{}",
        "LEGO-MAPPO (pair critic), trained with four": "curriculum/lego-scl",
        "LEGO-MAPPO (pair critic), curriculum": "curriculum/lego-curr-{}",
        "LEGO-MAPPO (pair critic), trained with two to eight": "beyond/mixed-sizes",
        "SEGNN (own critic), trained with four": "curriculum/segnn-scl",
        "SEGNN (own critic), curriculum": "curriculum/segnn-curr-{}",
        "MAPPO (own critic), from scratch": "curriculum/mappo-{}",
    },
    "sizes": {
        "LEGO-MAPPO (pair critic), trained with two to eight, 5e6 steps": "beyond/mixed-sizes",
        "LEGO-MAPPO (pair critic), trained with four, 2e6 steps": "beyond/large-teams",
    },
    "tag": {
        "LEGO-MAPPO (pair critic)": "tag/lego",
        "LEGO-MAPPO after 1e6 steps (pair critic)": "tag/lego-1e6",
        **{f"{name} (own critic)": f"tag/{FILES[name]}" for name in OWN},
    },
    "head-to-head": {
        "LEGO-MAPPO (pair critic)": "head-to-head/lego-{}",
        "LEGO-MAPPO after 1e6 steps (pair critic)": "head-to-head/lego-1e6-{}",
        "LEGO-MAPPO (paper's critic)": "head-to-head/lego-full-{}",
        "MAPPO (own critic)": "head-to-head/mappo-{}",
        "PIC (own critic)": "head-to-head/pic-{}",
    },
}
SOURCES["readings"] = SOURCES["generalization"]
WITH_FOUR = {"published-4": PUBLISHED, **{f"spread-4/{m}": f"generalization/{m}" for m in ("lego", "segnn")},
             **{f"spread-4/{m}": f"generalization/{m}-4" for m in ("pic", "mappo")}}  # fmt: skip
PRINTED = {  # rows of tables whose brackets hold the paper's mean: the label there
    "generalization": {"LEGO-MAPPO (as published)": "lego", "SEGNN (own critic)": "segnn",
                       "PIC (own critic), trained for each size": "pic",
                       "MAPPO (own critic), trained for each size": "mappo"},
    "ood": {"LEGO-MAPPO (pair critic)": "lego", **{f"{name} (own critic)": FILES[name] for name in OWN}},
    "curriculum": {"LEGO-MAPPO (pair critic), from scratch": "lego",
                   "LEGO-MAPPO (pair critic), trained with four": "lego-scl",
                   "LEGO-MAPPO (pair critic), curriculum": "lego-curr",
                   "SEGNN (own critic), trained with four": "segnn-scl",
                   "SEGNN (own critic), curriculum": "segnn-curr", "MAPPO (own critic), from scratch": "mappo"},
}  # fmt: skip
STARTS = ("left", "right", "uniform")
FACTS = {"The best of each column is in bold.", "A pursuer's return.",
         "Brackets hold the paper's mean.", "Brackets hold the 95 % interval.", "D and C are defined above.",
         "Return, closer to zero is better.", "Brackets hold the paper's seconds, on an NVIDIA A6000.",
         "PIC is defined by its critic and has no other."}  # fmt: skip


def printed(study, label, place):
    """The paper's number; None where it has none."""
    numbers = PAPER.get(study, {}).get(label, "").split()
    places = [str(p) for p in PLACES.get(study, ())]
    return dict(zip(places, numbers, strict=False)).get(str(place))


class Results:
    """The JSON files by study/part."""

    def __init__(self, folder):
        self.files = {
            f"{path.parent.name}/{path.stem}": json.loads(path.read_text())
            for path in sorted([*folder.glob("studies/*/*.json"), *folder.glob("references/*.json")])
        }

    def labelled(self, study, label):
        """Return the parts of a study with a label."""
        found = [key for key, part in self.files.items() if key.startswith(study + "/") and part.get("label") == label]
        return [self.files[key] for key in found]

    @staticmethod
    def pick(parts, figure, **where):
        """Return a figure of all rows that fit, one value for each seed."""
        where = {"limit": None, "engine": None, **where}
        rows = [row for part in parts for row in part.get("rows", ())]
        rows = [row for row in rows if all(row.get(name) == value for name, value in where.items())]
        return np.array([row[figure] for row in rows if row.get(figure) is not None], float)

    def cell(self, block, row, column, figure=None, **where):
        """The seeds' values behind one cell of a table; none where the file is not there."""
        key = SOURCES[block][row].format(column)
        part = self.files.get(WITH_FOUR.get(key, key))
        pursuit = block in ("tag", "head-to-head")
        if not pursuit:
            where["start" if block.startswith("ood") else "agents"] = column
        return self.pick([part] if part else [], figure or ("pursuer_return" if pursuit else "return_2c"), **where)

    def seconds(self, method, agents):
        """Return how long a training took without compilation."""
        part = self.files.get(f"run-time/{method}-{agents}")
        return part["steps"] / part["steps_per_second"] if part else None

    def curve(self, label):
        """Return a learning curve in Tag."""
        [part] = self.labelled("tag", label)
        return np.array(part["curve"]["steps"], float), np.array(part["curve"]["values"], float)


def interval(values):
    """Return Student's interval."""
    if values.std() == 0:
        return values[0], values[0]
    low, high = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
    return low, high


def welch(one, other):
    """Return the p of Welch's test."""
    return stats.ttest_ind(one, other, equal_var=False).pvalue


def ranks(one, other):
    """Mann and Whitney's test; never is the last of all."""
    top = 10 * max([x for x in [*one, *other] if math.isfinite(x)])
    one, other = (np.where(np.isfinite(x), x, top) for x in (one, other))
    return stats.mannwhitneyu(one, other).pvalue


def reach(steps, values, goal):
    """The first step at which each seed is at the goal."""
    return np.array([next((s for s, v in zip(steps, seed, strict=True) if v >= goal), math.inf) for seed in values.T])


def holm(chances):
    """Return p corrected by Holm's method."""
    corrected, worst = {}, 0.0
    for rank, (key, p) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, (len(chances) - rank) * p))
        corrected[key] = worst
    return corrected


def words(values):
    """Return a mean with its interval."""
    digits = 1 if abs(values.mean()) >= 2 else 3
    low, high = interval(values)
    return f"{values.mean():.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def named(text):
    """Return a text with the methods' names as the paper writes them."""
    return re.sub(r"\b(lego|segnn|mappo-gnn|mappo-local|mappo|pic)\b", lambda m: NAMES[m[1]], text)
