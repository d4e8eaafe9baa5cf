"""Write the tables of README.md and docs/ from the records in results/.

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; everything between is
replaced. `--check` changes nothing and fails if a table is not what its record says.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Whoever starts this file, `python benchmarks/tables.py` or `python -m benchmarks.tables`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments.published import DATASETS, UCI
from experiments.report.markdown import show
from experiments.report.statistics import Runs

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def table(names: list[str], rows: list[list[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.2g}" if value < 10 else f"{value:.1f}"


def provenance(record: dict[str, Any], *peers: str) -> str:
    about = record["environment"]
    parts = [about["cpu"], f"torch {about['torch']}"]
    parts += [f"{peer} {about[peer]}" for peer in peers or ("vbll",) if about.get(peer)]
    return f"Measured {about['time'][:10]} on {', '.join(parts)}."


def heads() -> str:
    """The promised ratios."""
    record = json.loads((RESULTS / "heads.json").read_text())
    rows = []
    for row in record["sections"]["targets"]:
        faster = row["against"] == "vbll"
        ratio = f"{number(row['ratio'])}× {'faster' if faster else 'the time'}"
        what = f"{row['phase']}, {row['model']}"
        against = "`vbll`" if faster else "`nn.Linear` + cross-entropy"
        target = row["target"].replace(" ", " ") + "×"
        rows.append([what, row["size"], against, ratio, target, row["verdict"].lower()])
    for row in json.loads((RESULTS / "compiled.json").read_text())["sections"]["compiled"]:
        what = f"train, {row['model']}, both sides compiled"
        ratio = f"{number(row['compiled/compiled'])}× the time"
        target = row["target"].replace(" ", " ") + "×"
        against = "`nn.Linear` + cross-entropy"
        rows.append([what, row["size"], against, ratio, target, row["verdict"].lower()])
    for row in record["sections"].get("memory", []):
        if row["target"]:
            resident = row["resident_MB"] / row["parameters_MB"]
            multiple = f"{row['allocated/parameters']:.1f}× allocated, {resident:.1f}× resident"
            limit = f"{row['target'].replace(' ', ' ')}×"
            rows.append(
                [
                    f"peak memory, {row['model']}",
                    row["size"],
                    "",
                    multiple,
                    limit,
                    f"{row['verdict'].lower()}, by allocated",
                ]
            )
    names = ["step", "size", "against", "measured", "target", ""]
    return f"{table(names, rows)}\n\n{provenance(record)}"


def section(name: str, record: str = "heads.json") -> str:
    """A section of the benchmark as it was printed."""
    rows = json.loads((RESULTS / record).read_text())["sections"][name]
    names = list(rows[0])
    return table(names, [[cell(row.get(name, "")) for name in names] for row in rows])


def cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "–" if math.isnan(value) else f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def grid() -> str:
    """The grid in short: ranges of the ratios over its sizes."""
    record = json.loads((RESULTS / "grid.json").read_text())
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in record["sections"]["grid"]:
        rows.setdefault((row["phase"], row["model"]), []).append(row)
    lines = []
    for (phase, model), found in rows.items():
        faster = [row["vbll/ours"] for row in found if not math.isnan(row["vbll/ours"])]
        slower = [row["ours/linear"] for row in found]
        span = [
            " – ".join(number(pick(values)) for pick in (min, statistics.median, max))
            if values
            else ""
            for values in (faster, slower)
        ]
        lines.append([f"{phase}, {model}", str(len(found)), str(len(faster)), *span])
    names = ["step", "sizes", "of them `vbll` can", "`vbll` / ours", "ours / `nn.Linear`"]
    return f"{table(names, lines)}\n\n{provenance(record)}"


def softmax() -> str:
    """Candidates for the deterministic predictive."""
    record = json.loads((RESULTS / "softmax.json").read_text())
    names = ["max error", "mean error", "mean KL", "ms, K=10", "ms, K=100"]
    rows = [[row["approximation"], *(cell(row[name]) for name in names)] for row in record["rows"]]
    return f"{table(['approximation', *names], rows)}\n\n{provenance(record)}"


def choosing() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RESULTS / "choosing.json").read_text())
    return record


def choosing_about() -> str:
    """What was trained on what, and where and when."""
    record = choosing()
    config = record["config"]
    sizes = ", ".join(map(str, config["bound_sizes"]))
    lines = [
        f"- Regression: {config['wave_size']} points of a sine with a gap in the middle and noise "
        f"of standard deviation {config['wave_noise']}, two layers of {config['width']} units.",
        f"- Heads: {config['moons_size']} points around two half-moons, and a ring of radius "
        f"{config['ring_radius']:g} around them.",
        f"- Bounds: {sizes} points around wider half-moons, {config['width']} random features.",
        f"- Numbers are means over {config['num_seeds']} seeds, each with its own data and "
        f"network, {config['test_size']} test points each; ± is one standard error. "
        "Pictures show the first seed.",
    ]
    return "\n".join([*lines, "", provenance(record)])


# Columns of the page "choosing": a heading, and where its numbers are in the record.
LOSS, NLL = ("−ELBO/T", "loss"), ("test NLL", "nll")
DIFFERENCE = ("against the default", "nll_difference")
COVERAGE = ("90 % intervals cover", "coverage_0.9")
NOISE, GAP = ("noise stddev", "noise_stddev"), ("stddev of the mean in the gap", "gap_stddev")


def choices(name: str, first: str, *columns: tuple[str, str], only: str = "") -> str:
    """Rows of a section whose choice begins in some way."""
    lines = []
    for row in choosing()["sections"][name]:
        if row["choice"].startswith(only):
            choice = row["choice"].removeprefix(f"{only} = ").removeprefix("noise ")
            lines.append([f"`{choice}`", *(with_error(row, key) for _, key in columns)])
    return table([first, *(heading for heading, _ in columns)], lines)


def with_error(row: dict[str, Any], key: str) -> str:
    """A number, and its standard error if there is one; as many digits as that deserves."""
    value, error = row[key], row.get(f"{key}_error")
    if error is None:
        return f"{value:.3f}".replace("-", "−")
    if error == 0:  # compared with itself
        return "–"
    sign = "+" if "difference" in key else ""
    return f"{value:{sign}.3f} ± {error:.3f}".replace("-", "−")


def bounds() -> str:
    """The objective and two metrics by bound, and the difference of each pair of models."""
    metrics, sides = (LOSS, NLL, ("test ECE", "ece")), ("jensen", "tilted", "difference")
    rows = choosing()["sections"]["bound"]
    lines = [
        [title, str(row["num_data"]), *(with_error(row, side) for side in sides)]
        for title, name in metrics
        for row in rows
        if row["metric"] == name
    ]
    return table(["", "T", "jensen", "tilted", "tilted − jensen"], lines)


def classifiers() -> str:
    rows = choosing()["sections"]["heads"]
    keys = ("accuracy", "nll", "brier", "ece")
    lines = [[row["head"], *(f"{row[key]:.3f}" for key in keys)] for row in rows]
    return table(["head", "accuracy", "test NLL", "Brier score", "ECE"], lines)


def detection() -> str:
    rows = choosing()["sections"]["scores"]
    keys = ("auroc", "fpr95")
    lines = [
        [row["head"], f"`{row['score']}`", *(f"{row[key]:.3f}" for key in keys)] for row in rows
    ]
    return table(["head", "score", "AUROC", "FPR95"], lines)


def seeds() -> str:
    """Many seeds, together and one by one."""
    record = json.loads((RESULTS / "seeds.json").read_text())
    rows = [
        [
            *(str(row["seeds"]), f"{row['one_by_one_s']:.1f} s", f"{row['together_s']:.1f} s"),
            *(f"{row['ratio']:.1f}×", f"{row['steady ratio']:.1f}×", row["target"]),
        ]
        for row in record["sections"]["seeds"]
    ]
    names = ["seeds", "one by one", "together", "faster", "without tracing", "target"]
    epochs = record["sections"]["seeds"][0]["epochs"]
    about = (
        f"The paper's network with two layers of 50 units, batch 32, {epochs} epochs of 720 "
        "examples, processor time, by `benchmarks/seeds.py`."
    )
    return f"{table(names, rows)}\n\n{about} {provenance(record)}"


def passes() -> str:
    """Passes of the solver of `posttrain`, and of AdamW."""
    records = [
        json.loads((RESULTS / name).read_text())
        for name in ("posttrain.json", "posttrain-large.json")
    ]
    rows = [
        [
            f"{row['data']}, T {row['T']}, N {row['N']}, K {row['K']}",
            *(row["covariance"], row["bound"], str(row["passes, ours"])),
            *(f"{cell(row[f'passes, {how}'])} of {row['epochs']}" for how in ("AdamW", "decayed")),
        ]
        for record in records
        for row in record["sections"]["passes"]
    ]
    names = ["data", "covariance", "bound", "ours", "AdamW", "AdamW, decayed"]
    about = (
        "Passes over the features to within 0.001 nats per example of the optimum; – is not within "
        "the epochs allowed. Learning rates of AdamW are the best of four. By "
        "`benchmarks/posttrain.py`."
    )
    return f"{table(names, rows)}\n\n{about} {provenance(records[0])}"


UCI_SPLITS = 20  # unless a cell says otherwise


def uci() -> str:
    """VBLL and our configuration on UCI data, beside the paper's and the authors' package."""
    runs = Runs.load(RESULTS / "uci", {})

    def measured(method: str, dataset: str, metric: str) -> str:
        count = len(runs.values(method, dataset, metric))
        few = "" if count in (0, UCI_SPLITS) else f" ({count} splits)"
        return show(runs.estimate(method, dataset, metric)) + few

    rows = []
    for metric, dataset in itertools.product(("nll", "rmse"), DATASETS):
        cells = [
            show(UCI["vbll", dataset, metric]),
            measured("vbll-package", dataset, metric),
            measured("vbll", dataset, metric),
            show(UCI["gp", dataset, metric]),
            measured("gp", dataset, metric),
            measured("ours", dataset, metric),
        ]
        rows.append([f"{dataset.capitalize()}, {metric.upper()}", *cells])
    names = ["", "VBLL, paper", "VBLL, `vbll`", "VBLL", "RBF GP, paper", "RBF GP", "Ours"]
    return table(names, rows)


ESTIMATOR_METRICS = {
    "rmse": "RMSE",
    "crps": "CRPS",
    "width": "width of 90 % intervals",
    "seconds": "seconds of processor time",
}


def estimators() -> str:
    """Estimators with default settings on tables: NLL, the best in bold, and coverage."""

    def cells(rows: list[dict[str, Any]]) -> list[str]:
        shares = [f"({100 * row['coverage']:.0f} %)" for row in rows]
        return [f"{nll} {share}" for nll, share in zip(best(rows, "nll"), shares, strict=True)]

    return by_table(cells, "")


def estimators_by(metric: str) -> str:
    """Estimators with default settings on tables: one metric, the best in bold."""
    return by_table(partial(best, metric=metric), ESTIMATOR_METRICS[metric])


def by_table(cells: Callable[[list[dict[str, Any]]], list[str]], corner: str) -> str:
    """A line for each table, from the rows of all methods on it."""
    record = json.loads((RESULTS / "estimators.json").read_text())
    rows = record["sections"]["summary"]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = []
    for _, group in itertools.groupby(rows, key=lambda row: row["table"]):
        found = list(group)
        lines.append([f"{found[0]['table']}, {found[0]['rows']:,} rows", *cells(found)])
    about = f"Means over {record['config']['splits']} random splits."
    names = [corner, *(f"`{method}`" for method in methods)]
    return f"{table(names, lines)}\n\n{about} {provenance(record, 'scikit-learn', 'ngboost')}"


def best(rows: list[dict[str, Any]], metric: str) -> list[str]:
    """Numbers with three digits, NLL with two decimals; the lowest in bold."""
    values = [row[metric] for row in rows]
    texts = [
        f"{v:.2f}" if metric == "nll" else f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in values
    ]
    lowest = texts[values.index(min(values))]
    return [f"**{text}**" if text == lowest else text for text in texts]


Tables = dict[str, Callable[[], str]]
TABLES: dict[Path, Tables] = {
    ROOT / "README.md": {
        "heads": heads,
        "uci": uci,
        "estimators": estimators,
    },
    ROOT / "docs" / "performance.md": {
        "targets": partial(section, "targets"),
        "memory": partial(section, "memory"),
        "scaling": partial(section, "scaling"),
        "backbone": partial(section, "backbone"),
        "cancellation": partial(section, "cancellation"),
        "grid": grid,
        "profile": partial(section, "profile", "profile.json"),
        "compiled": partial(section, "compiled", "compiled.json"),
    },
    ROOT / "docs" / "choosing.md": {
        "about": choosing_about,
        "classifiers": classifiers,
        "detection": detection,
        "covariance": partial(
            choices, "covariance", "covariance", LOSS, NLL, DIFFERENCE, COVERAGE, NOISE, GAP
        ),
        "together": partial(
            choices, "together", "covariance", LOSS, NLL, DIFFERENCE, COVERAGE, NOISE, GAP
        ),
        "bounds": bounds,
        "variance": partial(
            choices, "prior", "`variance`", LOSS, NLL, DIFFERENCE, NOISE, GAP, only="variance"
        ),
        "kl_weight": partial(
            choices, "prior", "`kl_weight`", NLL, DIFFERENCE, COVERAGE, GAP, only="kl_weight"
        ),
        "noise": partial(
            choices, "prior", "prior of the noise", NLL, DIFFERENCE, COVERAGE, NOISE, only="noise"
        ),
    },
    ROOT / "docs" / "tables.md": {
        metric: partial(estimators_by, metric) for metric in ESTIMATOR_METRICS
    },
    ROOT / "docs" / "using.md": {"seeds": seeds, "posttrain": passes},
    ROOT / "docs" / "decisions" / "0005-quadrature-for-the-mean-softmax.md": {"softmax": softmax},
}


def rendered(page: Path) -> str:
    """The page with its tables made anew."""
    text = page.read_text()
    for name, make in TABLES[page].items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page.relative_to(ROOT)} has no place for the table {name!r}")
        before, rest = text.split(begin)
        text = f"{before}{begin}{make()}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare, and fail if different")
    check = parser.parse_args().check
    stale = []
    for page in TABLES:
        text = rendered(page)
        if text != page.read_text():
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(text)
    print("changed:" if stale else "nothing changed", *stale)
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
