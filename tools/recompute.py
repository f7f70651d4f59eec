"""Compute the figures of README.md and docs/results.md again, from results/, without legoswarm: a second reviewer.

    python tools/recompute.py [FOLDER]      # of the repository; prints what differs, and exits with 1 if anything does

Every line that `legoswarm report --markdown` wrote is read, and every figure, verb and verdict in it is computed anew:
where rows come from, statistics and the paper's numbers are written down here a second time. A line that nobody
recomputes is an error too.
"""

import re
import sys
from pathlib import Path

import numpy as np
from recompute_claims import Claims
from recompute_sources import (
    FACTS,
    FILES,
    NAMES,
    PRINTED,
    PUBLISHED,
    SOURCES,
    STARTS,
    Results,
    interval,
    printed,
    welch,
)


class Reviewer:
    """Reads pages and keeps what differs."""

    def __init__(self, results):
        self.results, self.differ, self.checked = results, [], 0

    def expect(self, where, shown, right):
        """Note what a page has and the results do not."""
        self.checked += 1
        if shown != right:
            self.differ.append(f"{where}: the page has {shown!r}, the results {right!r}")

    def page(self, path):
        """Read all that a page has between marks."""
        text = path.read_text()
        blocks = re.findall(
            r"<!-- legoswarm report: begin ?([a-z-]*) -->\n(.*?)\n<!-- legoswarm report: end -->", text, re.S
        )
        self.expect(path.name, bool(blocks), True)
        tests = dict(blocks).get("tests")
        claims = Claims(self.results, self.expect)
        findings = claims.tests(tests) if tests else []
        for name, body in blocks:
            lines = body.splitlines()
            rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines if line.startswith("|")]
            prose = " ".join(line for line in lines if not line.startswith("|"))
            if name == "claims":
                self.board = prose.strip()
                claims.claims(rows[2:], self.board, findings)
            elif name == "findings":
                self.findings(lines)
            elif name != "tests":
                if name == "run-time":
                    self.times(rows[2:])
                elif name == "readings":
                    self.readings(rows[2:])
                else:
                    self.table(name or "generalization", rows)
                self.prose(name or "generalization", prose)

    def table(self, block, rows):
        """Compute seeds, means, the best of each column and what stands in brackets."""
        (head, _, *rows), digits = rows, 0 if block in ("tag", "head-to-head") else 1
        columns = [FILES.get(cell, cell.removesuffix(" agents")) for cell in head[2:]]
        columns = [int(column) if column.isdigit() else column for column in columns]
        found = {row[0]: [self.results.cell(block, row[0], column) for column in columns] for row in rows}
        means = {name: [f"{x.mean():.{digits}f}" if len(x) else "-" for x in cells] for name, cells in found.items()}
        best = [max((m for m in column if m != "-"), key=float) for column in zip(*means.values(), strict=True)]
        brackets = ["trained", "algorithms", "tag", "head-to-head"]
        for name, seeds, *cells in rows:
            self.expect(f"{block}, {name}", seeds, str(max(map(len, found[name]))))
            for at, (cell, values, mean) in enumerate(zip(cells, found[name], means[name], strict=True)):
                right = f"**{mean}**" if digits and mean == best[at] else mean
                theirs = printed(block, PRINTED.get(block, {}).get(name), columns[at])
                if theirs:
                    right += f" ({float(theirs):.1f})"
                elif block in brackets and len(values) > 1:
                    right += " ({:.{d}f} to {:.{d}f})".format(*interval(values), d=digits)
                self.expect(f"{block}, {name}, {head[at + 2]}", cell, right)

    def readings(self, rows):
        """Compute other readings of the return."""
        figures = ("return_2c", "return_1c", "distance", "collisions")
        for name, *cells in rows:
            twice, once, distance, touches = (self.results.cell("readings", name, 4, figure) for figure in figures)
            found = [
                twice,
                once,
                -distance - touches,
                self.results.cell("readings", name, 4, "return_2c", limit="none"),
            ]
            self.expect(f"readings, {name}", cells, [f"{x.mean():.1f}" if len(x) else "-" for x in found])

    def times(self, rows):
        """Compute seconds of training."""
        for name, *cells in rows:
            for agents, cell in zip((3, 6), cells, strict=True):
                theirs = printed("run-time", FILES[name], agents)
                right = f"{self.results.seconds(FILES[name], agents):.1f}" + (
                    f" ({float(theirs):,.0f})" if theirs else ""
                )
                self.expect(f"run-time, {name}, {agents} agents", cell, right)

    # Sentences

    def prose(self, block, text):
        """Take a paragraph apart."""
        for sentence in re.split(r"(?<=[.])\s+(?=[A-Z])", text.strip()):
            if sentence.strip() and sentence not in FACTS:
                self.sentence(block, sentence.strip())

    def sentence(self, block, sentence):
        """Find who recomputes a sentence."""
        first = sentence.split(" ")[0]
        if re.search(r"^[^:]+ is (ahead of|behind|not clearly apart from) ", sentence):
            self.standing(block, sentence)
        elif sentence.startswith("Against starts on the left"):
            self.expect(block, sentence, self.losses(block))
        elif sentence.startswith(("One seed of LEGO", "No seed of LEGO", "The table's mean")):
            if first != "The":
                self.expect(block, sentence, self.failed_seed())
        elif sentence.startswith(("MAPPO's pursuers earn", "Chased by")):
            self.expect(block, sentence, self.evaders(sentence))
        elif block == "run-time":
            self.expect(block, sentence in self.ratios() and sentence, sentence)
        else:
            self.differ.append(f"{block}: nobody recomputes {sentence!r}")

    def standing(self, block, sentence):
        """Every place that is named stands as is said, and no place with figures is left out."""
        subject, rest = re.match(r"(.+?),? is ((?:ahead|behind|not clearly).+)\.$", sentence).groups()
        clauses = re.findall(
            r"(ahead of|behind|not clearly apart from) (.+?)(?=(?: and|,) (?:ahead|behind|not clearly)|$)", rest
        )
        place = re.compile(r" (?:at ([\d, and]+) agents|against (\w+) evaders|for starts ([\w, ]+))$")
        everywhere, objects, said = bool(place.search(clauses[0][1])), [], {}
        last = place.search(clauses[-1][1])
        for word, text in clauses:
            found = place.search(text) or last
            columns = re.split(", | and ", next(filter(None, found.groups())))
            if (who := place.sub("", text).rstrip(",")) not in ("it", "them"):
                heads, tail = re.match(r"(.*\))((?:, [^()]+)?)$", who).groups()
                heads = re.findall(r"[A-Z][^(]*\([^)]*\)(?:, (?:from|trained|curriculum)[\w ]*)?", heads)
                objects = [head + tail for head in heads] if who not in SOURCES[block] else [who]
            for other in objects:
                for column in columns:
                    column = int(column) if column.isdigit() else FILES.get(column, column)
                    values = [self.results.cell(block, row, column) for row in (subject, other)]
                    right = "not clearly apart from"
                    if welch(*values) < 0.01:
                        right = "ahead of" if values[0].mean() > values[1].mean() else "behind"
                    self.expect(f"{block}, {subject} and {other} at {column}", word, right)
                    said.setdefault(other, []).append(column)
        for other, columns in said.items():
            known = [
                c
                for c in (2, 3, 4, 5, 6, 7, 8, 16, 32)
                if all(len(self.results.cell(block, r, c)) > 1 for r in (subject, other))
            ]
            if everywhere and block not in ("head-to-head", "ood"):
                self.expect(f"{block}, columns of {subject} and {other}", sorted(columns), known)

    def losses(self, block):
        """Write the sentence about starts."""
        parts = []
        for name in ("lego", "segnn", "mappo-local", "mappo"):
            part = self.results.files.get(f"ood/{name}{'-landmarks' * (block != 'ood')}")
            if part:
                means = [self.results.pick([part], "return_2c", start=start).mean() for start in STARTS]
                shares = [round(100 * (means[0] - other) / -means[0]) for other in means[1:]]
                texts = [f"{'loses' if share >= 0 else 'gains'} {abs(share)} %" for share in shares]
                parts.append(
                    f"{NAMES[name].replace('LEGO-MAPPO', 'LEGO')} {texts[0]} on the right and {texts[1]} everywhere"
                )
        return f"Against starts on the left {'; '.join(parts)}."

    def failed_seed(self):
        """Write the sentence about the worst seed of LEGO as published."""
        part = self.results.files[PUBLISHED]
        values = self.results.pick([part], "return_2c", agents=4)
        rest = np.sort(values)[1:]
        figures = f"{values.min():.1f} with four agents, where the other nine have {rest.mean():.1f} on average."
        if values.min() < rest.mean() - 5 * rest.std(ddof=1):
            return f"One seed of LEGO as published failed: seed {part['seeds'][values.argmin()]} has {figures}"
        return f"No seed of LEGO as published failed: the worst, seed {part['seeds'][values.argmin()]}, has {figures}"

    def evaders(self, sentence):
        """Write a sentence about evaders."""
        who = "lego" if "LEGO-MAPPO's pursuers" in sentence else "mappo"
        figure, kinds = "pursuer_return", ("more", "about as much", "less")
        if sentence.startswith("Chased"):
            figure, kinds = "evader_gap", ("farther apart", "about as far apart", "closer together")
        one, other = (
            self.results.pick([self.results.files[f"head-to-head/{who}-{m}"]], figure) for m in ("lego", "mappo")
        )
        kind = kinds[1] if welch(one, other) >= 0.01 else kinds[0] if one.mean() > other.mean() else kinds[2]
        than = "as" if kind == kinds[1] else "than"
        if figure == "pursuer_return":
            return f"MAPPO's pursuers earn {kind} against LEGO's evaders {than} against their own."
        gaps = f"they are {one.mean():.2f} from each other on average, and MAPPO's {other.mean():.2f}."
        return f"Chased by {NAMES[who]}'s pursuers, LEGO's evaders keep {kind} {than} MAPPO's: {gaps}"

    def ratios(self):
        """Write the sentences about times."""
        for one, other in (("lego", "mappo"), ("lego", "pic"), ("segnn", "lego")):
            three, six = (self.results.seconds(one, n) / self.results.seconds(other, n) for n in (3, 6))
            names = f"{NAMES[one]} takes {three:.1f} times as long as {NAMES[other]}"
            yield f"{names} with three agents and {six:.1f} times with six."
        work = []
        for method in ("lego", "segnn", "mappo", "pic"):
            content = self.results.files[f"run-time/{method}-3"]["content"]["policies"][0]
            work.append(f"{NAMES[method]} {content['algorithm']['epochs']} and {content['policy']['width']}")
        yield "These are not ratios of equal work."
        yield f"Epochs over each batch and widths are: {', '.join(work[:-1])} and {work[-1]}."

    def findings(self, lines):
        """Compute README's five lines."""

        def mean(key, **where):
            return f"{self.results.pick([self.results.files[key]], 'return_2c', **where).mean():.1f}"

        zoo, central = ([mean(f"references/{x}", agents=n) for n in (2, 8)] for x in ("spread", "hungarian"))
        segnn = [mean("spread-3/segnn"), mean("generalization/segnn", agents=4)]
        lego = [mean("beyond/paper-critic-3"), mean("beyond/paper-critic-4", agents=4)]
        masac = [
            mean(x) for x in ("spread-3/lego", "algorithms/lego-masac", "spread-3/mappo", "algorithms/mappo-masac")
        ]
        right = [
            f"- `zoo:spread` trained with four agents and steers two to eight with returns of {zoo[0]} to {zoo[1]}; a"
            f" central Hungarian controller, which sees everything and was tuned, has {central[0]} to {central[1]}.",
            f"{segnn[0]} against {lego[0]} with three, {segnn[1]} against {lego[1]} with four.",
            f"- With MASAC instead of MAPPO, trained with three agents, LEGO goes from {masac[0]} to {masac[1]} and"
            f" MAPPO's MLP from {masac[2]} to {masac[3]}.",
        ]
        self.expect("findings", len(lines), 5)
        said, _, figures = lines[2].partition(": ")
        self.expect("findings", [lines[0], figures, lines[3]], right)
        self.prose("generalization", lines[1].removeprefix("- "))
        self.prose("trained", said.removeprefix("- Trained for the team that it flies with, ") + ".")
        self.board = lines[4].removeprefix("- ")


def main(folder):
    """Review both pages; return the exit status."""
    reviewer = Reviewer(Results(folder / "results"))
    boards = []
    for page in ("README.md", "docs/results.md"):
        reviewer.page(folder / page)
        boards.append(reviewer.board)
    reviewer.expect("README's count of claims", *boards)
    print(*reviewer.differ, sep="\n", end="\n" * bool(reviewer.differ))
    print(f"{reviewer.checked} figures and sentences recomputed, {len(reviewer.differ)} differ")
    return 1 if reviewer.differ else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent))
