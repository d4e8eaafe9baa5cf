"""The page of results, from records made up so that every number is known."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.baselines.vbll import LastLayer
from experiments.datasets.uci import NAMES as DATASETS
from experiments.harness import figures
from experiments.harness.method import Entry
from experiments.harness.statistics import Runs, marked
from experiments.uci import page as pages
from experiments.uci.explanations import EXPLANATIONS
from experiments.uci.published import PUBLISHED
from experiments.uci.run import EXPERIMENT
from experiments.uci.task import COVERAGE, NLL

UCI, SUSPECT = PUBLISHED.cells, PUBLISHED.suspect

SINGLE = ("vbll", "gbll", "ldgbll", "map", "gp")
SEVERAL = ("dropout", "ensemble", "swag", "bbb", "vbll_bbb")


def registry(*names: str, num_seeds: int = 2) -> dict[str, Entry]:
    """Stand-ins labelled by their names in capitals; what follows a hyphen makes a variant."""
    found = {}
    for name in names:
        method = type(name, (LastLayer,), {"single_pass": name not in SEVERAL})
        seeds = dict.fromkeys(DATASETS, num_seeds)
        found[name] = Entry(
            method=method,
            label=name.upper(),
            num_seeds=seeds,
            together=seeds,
            variant_of=name.partition("-")[0] if "-" in name else None,
        )
    return found


def add(
    results: Path, method: str, dataset: str, nll: Sequence[float | None], **other: Any
) -> None:
    """Records of seeds 0, 1, … with the given NLLs and, if not given, an RMSE of 1."""
    path = results / "uci" / f"{dataset}-{method}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = other.pop("seeds", range(len(nll)))
    settings = other.pop("settings", {"epochs": 100, "clip": 1.0})
    seconds = other.pop("seconds", 30.0)
    with path.open("a") as file:
        for i, (seed, value) in enumerate(zip(seeds, nll, strict=True)):
            metrics = {"nll": value, "rmse": 1.0, "crps": 0.5, "coverage": 0.9, "width": 3.0}
            metrics |= {"epochs": 40, "validation_nll": 2.0}
            metrics |= {name: values[i] for name, values in other.items()}
            record = {
                "config": {"method": method, "dataset": dataset, "seed": seed, **settings},
                "metrics": metrics,
                "seconds": 2 * seconds,
                "processor_seconds": seconds,
                "versions": {"python": "3.11.7", "torch": "2.13.0"},
                "time": f"2026-01-0{seed % 9 + 1}T12:00:00+00:00",
            }
            file.write(json.dumps(record) + "\n")


def add_paper(results: Path, method: str, shift: Mapping[tuple[str, str], float]) -> None:
    """Two seeds with the paper's means, without spread, moved by the given numbers."""
    for dataset in DATASETS:
        nll, rmse = (
            2 * [UCI[method, dataset, metric].mean + shift.get((dataset, metric), 0.0)]
            for metric in ("nll", "rmse")
        )
        add(results, method, dataset, nll, rmse=rmse)


def load(results: Path, methods: Mapping[str, Entry]) -> Runs:
    return Runs.load(replace(EXPERIMENT, entries=methods), results)


def page(results: Path, methods: Mapping[str, Entry]) -> str:
    return pages.page(load(results, methods))


def row(text: str, *start: str) -> list[list[str]]:
    """Cells of all table rows that begin with the given cells, without the first of them."""
    lines = [line.replace("\u00a0", " ").strip("|").split("|") for line in text.splitlines()]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [line[len(start) :] for line in cells if tuple(line[: len(start)]) == start]


def dots(axes: Any) -> list[tuple[float, float]]:
    """Where means with error bars are."""
    lines = [container.lines[0] for container in axes.containers]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in lines]


def test_marks_are_those_the_paper_prints() -> None:
    bold = {
        ("boston", "nll"): {"gp", "dropout", "bbb"},
        ("boston", "rmse"): {"vbll", "gp", "dropout", "ensemble", "bbb"},
        ("concrete", "nll"): {"ldgbll", "dropout"},
        ("concrete", "rmse"): {"ldgbll", "map", "dropout", "ensemble"},  # ensemble: not printed so
        ("energy", "nll"): {"gbll", "gp", "ensemble", "bbb"},
        ("energy", "rmse"): {"gbll", "gp", "ensemble"},
        ("power", "nll"): {"vbll", "ensemble"},
        ("power", "rmse"): {"vbll", "ensemble"},
        ("wine", "nll"): {"gp"},
        ("wine", "rmse"): {"gp"},
        ("yacht", "nll"): {"gp"},
        ("yacht", "rmse"): {"gp"},
    }
    for (dataset, metric), expected in bold.items():
        keys = [(m, dataset, metric) for m in (*SINGLE, *SEVERAL)]
        column = {key[0]: UCI[key] for key in keys if key not in SUSPECT}
        assert marked(column, SINGLE, 2) == expected, (dataset, metric)


def test_tables_hold_measured_and_published_numbers(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [2.0, 2.2])
    add(tmp_path, "gp", "boston", [2.5, 2.7])
    text = page(tmp_path, registry("vbll", "gp"))
    blank = ["–"] * 5
    assert row(text, "VBLL", "measured") == [
        ["**2.10 ± 0.10**", *blank],  # standard error: 0.1 √2 / √2
        ["**1.00 ± 0.00**", *blank],
    ]
    assert row(text, "GP", "measured")[0] == ["2.60 ± 0.10", *blank]
    assert row(text, "", "paper")[0][:2] == ["2.55 ± 0.06", "3.22 ± 0.07"]
    assert row(text, "", "paper")[1][:2] == ["**2.41 ± 0.06**", "**3.08 ± 0.02**"]


def test_vbll_is_judged_by_both_standard_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPLANATIONS, ("vbll", "wine"), "repeated rows")
    methods = registry("vbll")
    add_paper(tmp_path, "vbll", {("wine", "nll"): 0.04, ("yacht", "rmse"): -0.5})
    text = page(tmp_path, methods)  # 0.04 is 4 / 3 of the paper's standard error
    assert "better in 11 of 12 cells by the paper's own standard error, and in 11 of 12" in text
    assert "- Wine, NLL: 1.06 ± 0.00, paper 1.02 ± 0.03; by either" in text.replace("\u00a0", " ")
    assert "\nWine: repeated rows\n" in text
    shutil.rmtree(tmp_path / "uci")
    add_paper(tmp_path, "vbll", {})
    (tmp_path / "uci" / "wine-vbll.jsonl").unlink()
    add(tmp_path, "vbll", "wine", [1.02, 1.10], rmse=[0.65, 0.65])  # 1.06 ± 0.04
    text = page(tmp_path, methods)
    assert "better in 11 of 12 cells by the paper's own standard error, and in 12 of 12" in text
    assert "paper 1.02 ± 0.03; only by the paper's own" in text.replace("\u00a0", " ")


def test_baselines_too_far_away_need_an_explanation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_paper(tmp_path, "gp", {("boston", "nll"): -0.15, ("wine", "rmse"): 0.09})
    methods = registry("gp")
    text = page(tmp_path, methods)  # 2.5 and 1.8 of the paper's standard errors
    assert row(text, "GP, Boston, NLL")[0][2:] == ["−2.5", "−2.5", "**no**"]
    assert not row(text, "GP, Wine, RMSE")
    assert "11 of 12 cells measured" in text
    assert "0 are explained below and 1 are not" in text
    monkeypatch.setitem(EXPLANATIONS, ("gp", "*"), "another kernel")
    text = page(tmp_path, methods)
    assert row(text, "GP, Boston, NLL")[0][-1] == "yes"
    assert "- **GP**: another kernel" in text
    assert "1 are explained below and 0 are not" in text


def test_suspected_misprints_are_marked_and_not_compared(tmp_path: Path) -> None:
    add_paper(tmp_path, "vbll_bbb", {("energy", "rmse"): 0.5})
    text = page(tmp_path, registry("vbll_bbb"))
    assert row(text, "", "paper")[1][2] == "0.062 ± 0.030†"
    assert "11 of 11 cells measured" in text
    assert "VBLL_BBB on Energy, RMSE: probably 0.62" in text


def test_our_configuration_is_better_only_where_the_printed_numbers_are(tmp_path: Path) -> None:
    means = {"boston": 2.546, "concrete": 3.216, "energy": 1.0, "power": 3.0}  # VBLL: 2.55, 3.22
    for dataset, mean in means.items():
        add(tmp_path, "ours", dataset, [mean, mean])
        add(tmp_path, "gp", dataset, [1.0, 1.0])
    text = page(tmp_path, registry("ours", "gp"))
    paper = ["✗ 0.00", "✗ 0.00", "✓ −0.37", "✗ +0.27", "–", "–", "1 of 6"]
    assert row(text, "NLL, the paper's VBLL") == [paper]
    assert row(text, "NLL, measured RBF GP")[0][2:5] == ["✗ 0.00", "✗ +2.00", "–"]
    assert row(text, "NLL, measured VBLL")[0] == ["–"] * 6 + ["0 of 6"]


def test_variants_are_compared_on_the_seeds_they_share(tmp_path: Path) -> None:
    add(tmp_path, "ours", "wine", [1.0, 2.0, 3.0])
    add(tmp_path, "ours-plain", "wine", [2.1, 3.5, 9.0], seeds=[1, 2, 7], rmse=[0.7, 0.8, 9.0])
    text = page(tmp_path, registry("ours", "ours-plain"))
    # Differences 0.1 and 0.5: mean 0.3, standard error 0.2; then −0.3 and −0.2, beyond two.
    assert row(text, "OURS-PLAIN")[0][4] == "+0.30 ± 0.20"
    assert row(text, "OURS-PLAIN")[1][4] == "**−0.25 ± 0.05**"
    assert not row(text, "OURS-PLAIN", "measured")  # no row of the tables beside the paper


def test_variants_of_vbll_are_compared_with_it_on_the_seeds_they_share(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "power", [1.0, 2.0, 9.0], rmse=[3.0, 4.0, 9.0])
    other = {"rmse": [3.5, 4.5], "epochs": [70, 100], "validation_nll": [1.9, 1.6]}
    add(tmp_path, "vbll-deep", "power", [1.5, 3.5], **other)
    text = page(tmp_path, registry("vbll", "vbll-deep"))
    beside = text.partition("Variants of VBLL:")[2].partition("###")[0]
    nll, rmse, validation, epochs = (cells[3] for cells in row(beside, "VBLL-DEEP"))
    assert (nll, rmse) == ("+1.00 ± 0.50 (2 seeds)", "**+0.50 ± 0.00** (2 seeds)")
    assert (validation, epochs) == ("−0.25 ± 0.15 (2 seeds)", "85 (1)")
    whole = [cells[3] for cells in row(beside, "VBLL")]
    assert whole == ["4.00 ± 2.52", "5.33 ± 1.86", "2.00 ± 0.00", "40"]
    assert [cells[3] for cells in row(beside, "paper")] == ["2.73 ± 0.01", "3.68 ± 0.03"]
    assert not row(text, "VBLL-DEEP", "measured")
    assert "variants of the paper's took 0.01 hours" in text  # a minute on two cores
    assert "Variants of VBLL_BBB:" not in text
    add_paper(tmp_path, "vbll_bbb", {("yacht", "rmse"): 1.0})
    add(tmp_path, "vbll_bbb-light", "yacht", [1.96, 1.96])
    text = page(tmp_path, registry("vbll", "vbll-deep", "vbll_bbb", "vbll_bbb-light"))
    beside = text.partition("Variants of VBLL_BBB:")[2].partition("##")[0]
    assert row(beside, "VBLL_BBB-LIGHT")[0][5] == "**−1.00 ± 0.00**"
    assert "Variants of" not in page(tmp_path / "empty", registry("vbll", "vbll-deep"))


def test_incomplete_lines_are_skipped_with_a_warning_and_listed_as_missing(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [1.0, 2.0])
    path = tmp_path / "uci" / "boston-vbll.jsonl"
    path.write_text(path.read_text()[:-40])
    with pytest.warns(UserWarning, match="boston-vbll"):
        text = page(tmp_path, registry("vbll"))
    assert row(text, "VBLL", "measured")[0][0] == "**1.00**"
    assert "- VBLL: Boston (seeds 1), Concrete, Energy, Power, Wine, Yacht" in text
    command = "--datasets boston,concrete,energy,power,wine,yacht --methods vbll\n"
    assert f"python -m experiments uci {command}" in text


def test_of_two_records_of_a_seed_the_later_counts(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [7.0, 2.0])
    add(tmp_path, "vbll", "boston", [1.0])
    assert row(page(tmp_path, registry("vbll")), "VBLL", "measured")[0][0] == "**1.50 ± 0.50**"


@pytest.mark.parametrize("value", [math.nan, None, math.inf])
def test_a_run_that_failed_is_shown(value: float | None, tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [1.0, value, 1.1])
    text = page(tmp_path, registry("vbll", num_seeds=3))
    shown = "inf" if value == math.inf else "nan"
    assert row(text, "VBLL", "measured")[0][0] == shown
    assert f"- VBLL, Boston: seed 1 ({shown})" in text
    assert f"- Boston, NLL: {shown}, paper" in text  # so outside the target


def test_unknown_methods_are_listed_by_their_key_and_never_marked(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [2.0, 2.0])
    add(tmp_path, "mystery", "boston", [1.0, 1.0])
    text = page(tmp_path, registry("vbll"))
    assert row(text, "`mystery`", "measured")[0][0] == "1.00 ± 0.00"
    assert row(text, "VBLL", "measured")[0][0] == "**2.00 ± 0.00**"
    assert "*not in the registry*" in text


def test_seeds_far_above_the_median_are_named(tmp_path: Path) -> None:
    # Median 1, median absolute deviation 0.1: the limit is 1 + 3 · 1.4826 · 0.1 = 1.445.
    add(tmp_path, "vbll", "yacht", [0.9, 0.9, 0.9, 1.0, 1.1, 1.44, 1.45])
    text = page(tmp_path, registry("vbll", num_seeds=7))
    assert "- VBLL, Yacht: seed 6 (1.45)\n" in text
    assert ["–"] * 5 + ["1.00 / 1.45"] in row(text, "VBLL")


def test_times_and_settings_come_from_the_records(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [1.0, 1.0], seconds=30.0)
    add(tmp_path, "vbll", "power", [1.0, 1.0], seconds=90.0, settings={"epochs": 40, "clip": 1.0})
    add(tmp_path, "vbll", "wine", [1.0], seconds=60.0)
    text = page(tmp_path, registry("vbll"))
    assert ["30.0", "–", "–", "90.0", "60.0", "–", "5.0"] in row(text, "VBLL")
    assert row(text, "**all**")[0][-1] == "**5.0**"
    assert "**VBLL**, 2 (1 on Wine) seeds: epochs 100 (40 on Power), clip 1.0. Records: " in text
    assert "[Power](power-vbll.jsonl)" in text
    assert "Versions: python 3.11.7, torch 2.13.0. Runs of 2026-01-01 to 2026-01-02." in text
    assert ["40", "–", "–", "40 (2)", "40", "–"] in row(text, "VBLL")  # chosen epochs


def test_evaluations_where_no_epochs_are_chosen_are_not_compared_with_a_limit(
    tmp_path: Path,
) -> None:
    add(tmp_path, "gp", "wine", [1.0, 1.0], epochs=[101, 103], validation_nll=[None, None])
    chosen = page(tmp_path, registry("gp")).partition("Epochs chosen on validation data")[2]
    assert row(chosen, "GP")[0] == ["–", "–", "–", "–", "102", "–"]


def test_coverage_width_and_crps_are_reported(tmp_path: Path) -> None:
    add(tmp_path, "gp", "energy", [1.0, 1.0], coverage=[0.8, 0.9], width=[2.0, 4.0], crps=[0.1] * 2)
    found = [cells[2] for cells in row(page(tmp_path, registry("gp")), "GP") if len(cells) == 6]
    assert "85.0 ± 5.0" in found
    assert "3.00 ± 1.00" in found
    assert "**0.100 ± 0.000**" in found


def test_every_row_of_every_table_has_all_columns(tmp_path: Path) -> None:
    add_paper(tmp_path, "vbll", {("wine", "nll"): 1.0})
    add_paper(tmp_path, "swag", {("wine", "nll"): 1.0})
    add(tmp_path, "ours", "boston", [1.0, 1.0])
    add(tmp_path, "ours-plain", "boston", [1.0, 1.0])
    text = page(tmp_path, registry("vbll", "ours", "ours-plain", "swag"))
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) >= 13
    for lines in tables:
        assert len({line.count("|") for line in lines}) == 1
        assert set(lines[1]) <= set("|:- ")


@pytest.mark.slow
def test_the_page_is_the_same_when_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for method in ("vbll", "swag", "unknown"):
        add(tmp_path, method, "boston", [1.0, 2.0])
    monkeypatch.setattr(pages, "EXPERIMENT", replace(EXPERIMENT, entries=registry("vbll", "swag")))
    headline = pages.write(tmp_path)
    assert headline is not None
    assert headline.startswith("VBLL is within one standard error")
    written = sorted(p for p in tmp_path.rglob("*.*") if p.suffix in (".md", ".png"))
    before = [p.read_bytes() for p in written]
    names = ["README.md", "coverage.png", "nll.png", "rmse.png"]
    assert [str(p.relative_to(tmp_path / "uci")) for p in written] == names
    pages.write(tmp_path)
    assert [p.read_bytes() for p in written] == before
    for image in ("nll", "rmse", "coverage"):
        assert f"({image}.png)" in written[0].read_text()


def test_without_any_record_everything_is_missing_and_no_page_is_written(tmp_path: Path) -> None:
    text = page(tmp_path, registry("vbll", "gp", num_seeds=20))
    assert "240 runs are missing" in text
    assert "--methods vbll,gp\n" in text
    assert pages.write(tmp_path) is None


def test_figures_show_measured_and_published_means_where_they_are(tmp_path: Path) -> None:
    add(tmp_path, "vbll", "boston", [2.0, 3.0])
    add(tmp_path, "gp", "boston", [2.4, 2.4], coverage=[0.5, 0.7])
    runs = load(tmp_path, registry("vbll", "gp"))
    assert sorted(x for x, _ in dots(figures.draw(runs, NLL, PUBLISHED).axes[0])) == pytest.approx(
        [2.4, 2.41, 2.5, 2.55]
    )
    found = dots(figures.draw(runs, COVERAGE, nominal=90.0).axes[0])
    assert found == [pytest.approx((90.0, 0)), pytest.approx((60.0, 1))]


def test_figures_keep_far_and_failed_runs_at_the_edge_with_their_numbers(tmp_path: Path) -> None:
    for method, value in zip((*SINGLE, *SEVERAL), range(10), strict=True):
        add(tmp_path, method, "boston", 2 * [{8: 500.0, 9: math.nan}.get(value, 2.5)])
    runs = load(tmp_path, registry(*SINGLE, *SEVERAL))
    boston = figures.draw(runs, NLL, PUBLISHED).axes[0]
    assert {text.get_text() for text in boston.texts} == {"500.00", "nan"}
    assert boston.get_xlim()[1] < 10
