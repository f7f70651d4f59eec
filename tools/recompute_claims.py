"""The claims of docs/results.md, decided a second time, for tools/recompute.py."""

import math
import re

import numpy as np
from recompute_sources import STARTS, holm, named, printed, ranks, reach, welch, words
from scipy import stats


class Claims:
    """Reads the table of claims and that of all comparisons; what differs goes to `expect`."""

    def __init__(self, results, expect):
        self.results, self.expect = results, expect

    def tests(self, body):
        """Compute every comparison again; return them with what they say: number, text, p, agrees."""
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in body.splitlines()][2:]
        found = [self.compare(study, text) for _, study, text, _ in rows]
        chances = {}
        for study in {row[1] for row in rows}:
            raw = {at: f[1] for at, f in enumerate(found) if rows[at][1] == study and f[1] is not None}
            chances |= holm(raw)
        out = []
        for at, ((number, study, text, p), (right, _, agrees)) in enumerate(zip(rows, found, strict=True)):
            self.expect(f"comparison of claim {number} ({study})", text, right)
            chance = chances.get(at)
            shown = "" if chance is None else "< 0.001" if chance < 0.001 else f"{chance:.3f}"
            self.expect(f"p of claim {number}, {text}", p, shown)
            out.append((int(number), study, text, chance, agrees if chance is None or chance < 0.05 else None))
        return out

    def compare(self, study, text):
        """Return a comparison as it should read, its p if there is a test, and whether it agrees (None: no)."""
        number = r"(-?[\d.]+(?:e[+-]?\d+)?|inf)"
        if text.startswith("not run yet: "):
            return text, None, None
        if m := re.fullmatch(rf"(.+?) {number} \[.*?\] versus (.+?) {number} \[.*?\]", text):
            one, other = self.sides(study, m[1], m[3])
            return (
                f"{m[1]} {words(one)} versus {m[3]} {words(other)}",
                welch(one, other),
                bool(one.mean() > other.mean()),
            )
        if m := re.fullmatch(rf"to {number}: (.+?) after .*? steps, (.+?) after .*? \(medians\)", text):
            curves = []
            for label in (m[2], m[3]):
                [part] = self.results.labelled(study, label)
                curves.append((np.array(part["curve"]["steps"]), np.array(part["curve"]["values"], float)))
            goal = min(values[-1].mean() for _, values in curves)
            return self.sooner(
                f"to {goal:.1f}: {m[2]} after {{:.2g}} steps, {m[3]} after {{:.2g}} (medians)", curves, (goal, goal)
            )
        if m := re.fullmatch(r"to half of its peak: (.+?) after .*? steps, (.+?) after .*? \(medians\)", text):
            curves = [self.results.curve(label) for label in m.groups()]
            goals = [values.mean(1).max() / 2 for _, values in curves]
            form = f"to half of its peak: {m[1]} after {{:.2g}} steps, {m[2]} after {{:.2g}} (medians)"
            return self.sooner(form, curves, goals)
        for pattern, compute in self.margins().items():
            if m := re.fullmatch(pattern, text):
                right, agrees = compute(*m.groups())
                return right, None, agrees
        return "(nobody recomputes this)", None, None

    @staticmethod
    def sooner(form, curves, goals):
        """Compare how soon curves reach their goals."""
        one, other = (reach(*curve, goal) for curve, goal in zip(curves, goals, strict=True))
        order = stats.rankdata([*one, *other])
        agrees = bool(order[: len(one)].mean() < order[len(one) :].mean())
        return form.format(np.median(one), np.median(other)), ranks(one, other), agrees

    def sides(self, study, one, other):
        """The seeds' values that two names of a comparison stand for."""
        if m := re.fullmatch(r"(\w+)'s gain against (\w+)", one):

            def gain(foe):
                meet = [self.results.files[f"head-to-head/{a}-{b}"] for a, b in ((m[1], foe), (foe, m[1]))]
                return np.subtract(*(self.results.pick([part], "pursuer_return") for part in meet))

            return gain(m[2]), gain(other)
        if m := re.fullmatch(r"(.+) at its peak", one):
            values = self.results.curve(m[1])[1]
            choosing, tested = np.split(values, [values.shape[1] // 2], axis=1)
            return tested[choosing.mean(1).argmax()], tested[-1 if other == "at the end" else 0]
        if m := re.fullmatch(r"peak of (.+)", one):
            tops = [self.results.curve(label)[1] for label in (m[1], other)]
            return [values[values.mean(1).argmax()] for values in tops]
        if m := re.fullmatch(r"(.+) \(surround, above independent directions\)", one):
            return self.results.pick(self.results.labelled("tag", m[1]), "surround") - 0.475, np.zeros(2)
        if m := re.fullmatch(r"(lego, several policies) \((\w+), (\w+)\)", one):
            parts = self.results.labelled("agent-failure", m[1])
            first, second = (self.results.pick(parts, m[2], failure=kind) for kind in (m[3], other))
            return first, np.zeros(2) if other == "zero" else second
        label, figure, name, value = re.fullmatch(r"(.+?)(?: \((\w+)\))?(?: at (\w+) (\w+))?", one).groups()
        where = {name: int(value) if value.isdigit() else value} if name else {}
        if study.startswith("spread") and name:
            study = f"spread-{value}"
        figure = figure or ("pursuer_return" if study == "head-to-head" else "return_2c")
        labels = label, re.sub(r" \(\w+\)$", "", other)
        return [self.results.pick(self.results.labelled(study, each), figure, **where) for each in labels]

    def margins(self):
        """Comparisons without a test: pattern -> the text as it should be, and whether it agrees."""

        def peak(label):
            steps, values = self.results.curve(label)
            return steps[values.mean(1).argmax()], values.mean(1).max()

        def losses(label):
            means = [
                self.results.pick(self.results.labelled("ood", label), "return_2c", start=s).mean() for s in STARTS
            ]
            return [(means[0] - mean) / -means[0] for mean in means[1:]]

        def symmetry(name):
            error = self.results.files["equivariance/lego"]["errors"][name]["quantile"]
            return f"{name}: 90 % below {error:.1e}", error < 1e-3

        def highest(label):
            low, high = (0.5e6, 2e6) if label == "lego" else (0, 4e6)
            return f"{label} peaks at {peak(label)[0]:.2g} steps", bool(low <= peak(label)[0] <= high)

        def later(one, other):
            steps = peak(one)[0], peak(other)[0]
            return f"{one} peaks at {steps[0]:.2g} steps, {other} at {steps[1]:.2g}", bool(steps[0] > steps[1])

        def near_zero(label, than):
            most, limit = peak(label)[1], 0.1 * peak(than)[1]
            return f"{label} is at most {most:.1f}, 10% of {than}'s peak is {limit:.1f}", bool(most < limit)

        def settled(label):
            steps, values = self.results.curve(label)
            share, means, limit = steps / steps[-1], values.mean(1), 0.1 * peak(label)[1]
            ends = [means[(share > low) & (share <= low + 0.1)].mean() for low in (0.8, 0.9)]
            text = f"{label} has {ends[0]:.1f} in the ninth tenth and {ends[1]:.1f} in the last"
            return f"{text}, 10% of its peak is {limit:.1f}", bool(abs(ends[1] - ends[0]) < limit)

        def unseen(label):
            steps, values = self.results.curve(f"{label} after 1e6 steps")
            place = f"{steps[0]:.2g} steps, before the evaluations begin"
            return f"{label} after 1e6 steps has {values[0].mean():.1f} at {place}", None

        def ratio(agents, one, other):
            a, b = self.results.seconds(one, agents), self.results.seconds(other, agents)
            low, high = {("lego", "pic"): (0, 2), ("segnn", "lego"): (10, math.inf)}.get((one, other), (1, 2))
            return f"{agents} agents: {one} {a:.1f} s, {other} {b:.1f} s, ratio {a / b:.2f}", low <= a / b <= high

        def steady(label):
            loss = max(losses(label))
            return f"{label} loses at most {max(loss, 0):.0%}", bool(loss <= 0.25)

        def degrades(label):
            right, anywhere = losses(label)
            return f"{label} loses {right:.0%} on the right, {anywhere:.0%} anywhere", bool(min(right, anywhere) > 0.25)

        def one_policy(figure, kind):
            [row] = [row for row in self.results.files["agent-failure/lego"]["rows"] if row["failure"] == kind]
            text = f"one policy, {figure}, {kind}: {row[figure]:.2f} +- {1.96 * row[f'{figure}_se']:.2f} over episodes"
            return text, None

        def refused(label):
            parts = self.results.labelled("generalization", label)
            trained = [
                (p["content"]["policies"][0]["task"]["agents"], row["agents"]) for p in parts for row in p["rows"]
            ]
            team = "acts only for the team it was trained with (4 agents, 4 landmarks), not 3 agents, 3 landmarks"
            return f"{label} {team}", all(a == b for a, b in trained)

        return {
            r"(.+): 90 % below .+": symmetry,
            r"(.+) peaks at \S+ steps": highest,
            r"(.+) peaks at \S+ steps, (.+) at \S+": later,
            r"(.+) is at most .+% of (.+)'s peak is .+": near_zero,
            r"(.+) has .+ in the ninth tenth and .+": settled,
            r"(.+) after 1e6 steps has .+ before the evaluations begin": unseen,
            r"(\d+) agents: (\S+) .+ s, (\S+) .+ s, ratio .+": ratio,
            r"(.+) loses at most .+": steady,
            r"(.+) loses .+ on the right, .+ anywhere": degrades,
            r"one policy, (\w+), (\w+): .+": one_policy,
            r"(\w+) acts only for .+": refused,
        }

    def claims(self, rows, board, findings):
        """Decide every claim by its comparisons."""
        verdicts = []
        for number, _, theirs, here, test, verdict in rows:
            own = [finding for finding in findings if finding[0] == int(number)]
            says = [agrees for *_, agrees in own]
            right = "does not hold" if False in says else "holds" if says and all(says) else "not decided"
            verdicts.append(right)
            self.expect(f"verdict of claim {number}", verdict.strip("*"), right)
            said = {"does not hold": False, "holds": True, "not decided": None}[right]
            pick = min if right == "does not hold" else max
            _, study, text, chance, agrees = pick(
                (f for f in own if f[4] is said), key=lambda f: -1 if f[3] is None else f[3]
            )
            p = "" if chance is None else "p < 0.001" if chance < 0.001 else f"p = {chance:.3f}"
            p = p or ("none" if agrees is None else "our margin")
            self.expect(f"test of claim {number}", test, p + (f", of {len(own)}" if len(own) > 1 else ""))
            self.expect(f"claim {number}, here", here, text if text.startswith("not run") else named(text))
            self.expect(f"claim {number}, the paper", theirs, self.theirs(study, text))
        counts = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "not decided")]
        line = "Of {} claims of the paper {} hold here, {} do not and {} are not decided."
        self.expect("claims", board, line.format(len(verdicts), *counts))

    @staticmethod
    def theirs(study, text):
        """What the paper has for a comparison."""
        if m := re.match(r"(\d+) agents: (\S+) .+ s, (\S+) .+ s, ratio", text):
            a, b = (float(printed("run-time", x.removesuffix("-equal"), m[1])) for x in (m[2], m[3]))
            return f"ratio {a / b:.2f}"
        if m := re.match(r"(\S+) at \w+ (\w+) .+ versus (\S+) ", text):
            numbers = [printed(study, label, m[2]) for label in (m[1], m[3])]
            if None not in numbers:
                return " against ".join(numbers)
        return "in words"
