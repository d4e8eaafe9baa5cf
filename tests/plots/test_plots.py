"""What pictures show, against what it should be."""

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal

pytest.importorskip("matplotlib", reason="install lastlayer[plots]")
pytest.importorskip("torchmetrics", reason="install lastlayer[plots]")

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import lastlayer as ll
from lastlayer import metrics, ood, plots


def line(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """The points of the one line with a label."""
    (found,) = [drawn for drawn in ax.lines if drawn.get_label() == label]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def edges_of_band(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, lower and upper ends of a filled band."""
    (band,) = [drawn for drawn in ax.collections if drawn.get_label() == label]
    vertices: Any = band.get_paths()[0].vertices
    positions = np.unique(vertices[:, 0])
    ends = [vertices[vertices[:, 0] == position, 1] for position in positions]
    return positions, np.array([end.min() for end in ends]), np.array([end.max() for end in ends])


def bars(ax: Axes, label: str) -> list[tuple[float, float, float]]:
    """Left edge, bottom and height of the bars with a label."""
    (found,) = [drawn for drawn in ax.containers if drawn.get_label() == label]
    patches: Any = found.patches  # type: ignore[attr-defined]
    return [(bar.get_x(), bar.get_y(), bar.get_height()) for bar in patches]


def steps(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Values and edges of the histogram with a label."""
    (found,) = [drawn for drawn in ax.patches if drawn.get_label() == label]
    values, edges, _ = found.get_data()  # type: ignore[attr-defined]
    return values, edges


def legend(ax: Axes) -> list[str]:
    drawn = ax.get_legend()
    assert drawn is not None
    return [drawn.get_title().get_text(), *(text.get_text() for text in drawn.get_texts())]


def regression(count: int, outputs: int, generator: torch.Generator) -> ll.GaussianPredictive:
    mean, epistemic, noise = torch.randn(3, count, outputs, generator=generator)
    return ll.GaussianPredictive(mean, epistemic.exp(), noise.exp())


def test_band_is_the_interval_around_the_mean_in_the_order_of_the_inputs(
    generator: torch.Generator,
):
    x = torch.randn(30, 1, generator=generator)
    predictive = regression(30, 2, generator)
    data = torch.randn(9, generator=generator), torch.randn(9, 2, generator=generator)
    ax = plots.predictive_band(x, predictive, data, level=0.8, output=1)
    order = x.squeeze().argsort()
    mean, variance = predictive.mean[order, 1], predictive.variance[order, 1]
    drawn_x, drawn_mean = line(ax, "mean")
    np.testing.assert_allclose(drawn_x, x.squeeze()[order])
    np.testing.assert_allclose(drawn_mean, mean)
    for label, spread in [
        ("80 %, with noise", variance.sqrt()),
        ("80 %, weights alone", predictive.epistemic_variance[order, 1].sqrt()),
    ]:
        positions, low, high = edges_of_band(ax, label)
        np.testing.assert_allclose(positions, x.squeeze()[order])
        np.testing.assert_allclose(low, Normal(mean, spread).icdf(torch.tensor(0.1)))
        np.testing.assert_allclose(high, Normal(mean, spread).icdf(torch.tensor(0.9)))
    points_x, points_y = line(ax, "9 points")
    np.testing.assert_allclose(points_x, data[0])
    np.testing.assert_allclose(points_y, data[1][:, 1])


def test_bars_of_a_reliability_diagram_are_accuracies_and_shares():
    confidence = torch.tensor([0.55, 0.65, 0.95, 0.85, 0.99])
    probs = torch.stack([confidence, 1 - confidence], -1)
    target = torch.tensor([0, 1, 0, 0, 1])
    ax = plots.reliability_diagram(probs, target, num_bins=5)
    expected = [(0.4, 0.0, 1.0), (0.6, 0.0, 0.0), (0.8, 0.0, 2 / 3)]
    np.testing.assert_allclose(bars(ax, "accuracy"), expected)
    gaps = [(0.4, 1.0, -0.45), (0.6, 0.0, 0.65), (0.8, 2 / 3, 0.93 - 2 / 3)]
    np.testing.assert_allclose(bars(ax, "gap to the confidence"), gaps)
    (below,) = ax.child_axes
    shares: Any = below.containers[0].patches  # type: ignore[attr-defined]
    np.testing.assert_allclose([bar.get_height() for bar in shares], [0.2, 0.2, 0.6])
    error = (0.45 + 0.65 + 3 * abs(0.93 - 2 / 3)) / 5
    assert legend(ax)[0] == f"ECE {error:.3f}"


def test_reliability_of_a_predictive_of_probabilities_and_of_bins_look_the_same(
    generator: torch.Generator,
):
    mean, epistemic, noise = torch.randn(3, 80, 4, generator=generator)
    predictive = ll.DiscriminativePredictive(2 * mean, epistemic.exp(), noise.exp())
    target = torch.randint(4, (80,), generator=generator)
    bins = metrics.calibration_bins(predictive.probs(), target)
    expected = bars(plots.reliability_diagram(predictive, target), "accuracy")
    assert len(expected) > 3
    for ax in (
        plots.reliability_diagram(predictive.probs(), target),
        plots.reliability_diagram(bins),
    ):
        np.testing.assert_allclose(bars(ax, "accuracy"), expected)


def test_calibration_curve_shows_how_many_targets_the_intervals_hold(generator: torch.Generator):
    predictive = regression(300, 1, generator)
    target = predictive.mean + 2 * torch.randn(300, 1, generator=generator)
    ax = plots.calibration_curve(predictive, target, levels=(0.2, 0.5, 0.9))
    levels, observed = line(ax, "observed, 300 examples")
    central = (2 * Normal(predictive.mean, predictive.stddev).cdf(target) - 1).abs()
    assert levels.tolist() == [0.2, 0.5, 0.9]
    expected = [(central < p).double().mean().item() for p in (0.2, 0.5, 0.9)]
    np.testing.assert_allclose(observed, expected)
    positions, low, high = edges_of_band(ax, "calibrated, 95 % of samples")
    middle = np.isclose(positions, 0.5)
    deviation = 1.96 * math.sqrt(0.25 / 300)
    np.testing.assert_allclose([low[middle], high[middle]], [[0.5 - deviation], [0.5 + deviation]])
    ax = plots.calibration_curve(metrics.coverage_curve(predictive, target, (0.2, 0.5, 0.9)))
    np.testing.assert_allclose(line(ax, "observed, 300 examples")[1], observed)


def test_histograms_hold_the_share_of_the_scores_in_each_bin(generator: torch.Generator):
    inside = torch.randn(50, generator=generator)
    outside = torch.randn(20, 2, generator=generator) + 2
    ax = plots.ood_histogram(inside, outside, num_bins=12, label="entropy")
    both = torch.cat([inside, outside.flatten()]).numpy()
    edges = np.linspace(both.min(), both.max(), 13)
    for scores, label in ((inside, "in distribution"), (outside, "out of distribution")):
        counts, _ = np.histogram(scores.numpy(), edges)
        shares, drawn_edges = steps(ax, label)
        np.testing.assert_allclose(drawn_edges, edges)
        np.testing.assert_allclose(shares, counts / scores.numel())
    pairs = (outside.reshape(-1, 1) > inside).double().mean().item()
    shown = legend(ax)[0].removeprefix("AUROC ").split(",")[0]
    assert float(shown) == pytest.approx(pairs, abs=0.000501)
    assert ax.get_xlabel() == "entropy"


def make_comparison() -> ood.Comparison:
    scores = {"worse": 0.6, "best": 0.9, "middle": 0.7}
    return ood.Comparison(
        {},
        {},
        {
            name: {
                data: {"auroc": value - gap, "aupr": value, "fpr95": 1 - value}
                for data, gap in (("near", 0.1), ("far", 0.0))
            }
            for name, value in scores.items()
        },
        {},
    )


@pytest.mark.parametrize(("metric", "sign"), [("auroc", 1), ("fpr95", -1)])
def test_a_comparison_has_the_best_score_on_top(metric: str, sign: int):
    comparison = make_comparison()
    ax = plots.ood_comparison(comparison, metric=metric)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["worse", "middle", "best"]
    for line, data in zip(ax.lines, ("near", "far"), strict=True):
        expected = [comparison.metrics[name][data][metric] for name in names]
        assert line.get_xdata() == pytest.approx(expected)
        assert sorted(expected, reverse=sign < 0) == expected
    assert legend(ax)[1:] == ["near", "far"]
    with pytest.raises(ValueError, match="did you mean 'auroc'"):
        plots.ood_comparison(comparison, metric="auc")


def test_infinite_scores_count_in_the_outermost_bins():
    ax = plots.ood_histogram(
        torch.tensor([0.0, -math.inf]), torch.tensor([4.0, math.inf]), num_bins=4
    )
    assert steps(ax, "in distribution")[0].tolist() == [1.0, 0, 0, 0]
    assert steps(ax, "out of distribution")[0].tolist() == [0, 0, 0, 1.0]


def test_density_map_is_the_log_density_below_its_peak(generator: torch.Generator):
    inputs = torch.randn(40, 2, generator=generator)
    target = torch.arange(40) % 3
    asked = []

    def model(points: torch.Tensor) -> torch.Tensor:
        asked.append(points)
        return 7 - 0.5 * points.square().sum(-1)

    ax = plots.feature_density(model, inputs, target, depth=5, margin=0.5, resolution=41)
    (grid,) = asked
    low, high = inputs.amin(0), inputs.amax(0)
    assert grid.shape == (41 * 41, 2)
    torch.testing.assert_close(grid.amin(0), low - 0.5 * (high - low))
    torch.testing.assert_close(grid.amax(0), high + 0.5 * (high - low))
    # the contour k/3 nats below a peak at the origin is a circle of radius √(2k/3)
    filled: Any = ax.collections[0]
    radii = [np.linalg.norm(path.vertices, axis=-1) for path in filled.get_paths()]
    peak = grid.norm(dim=-1).min().item()  # of the grid, near the origin but not at it
    for ring, below in ((14, 1 / 3), (10, 5 / 3)):  # a ring's outer end, nats below the peak
        assert radii[ring].max() == pytest.approx(math.sqrt(2 * below + peak**2), rel=0.02)
    for label in range(3):
        (points,) = [drawn for drawn in ax.collections if drawn.get_label() == f"y = {label}"]
        offsets: Any = points.get_offsets()
        np.testing.assert_allclose(offsets, inputs[target == label])


def test_density_of_a_generative_head_is_drawn(generator: torch.Generator):
    inputs = torch.randn(60, 2, generator=generator)
    head = ll.GenerativeClassification(2, 2, num_data=60)
    head.fit_exact(inputs, (inputs[:, 0] > 0).long())
    drawn: Any = plots.feature_density(head, inputs, resolution=31).collections[0]
    same: Any = plots.feature_density(
        lambda x: head(x).log_density(), inputs, resolution=31
    ).collections[0]
    for path, expected in zip(drawn.get_paths(), same.get_paths(), strict=True):
        np.testing.assert_allclose(path.vertices, expected.vertices)


HISTORY = [
    {"epoch": 1, "loss": 3.0, "bound": -2.0, "kl": 80.0, "log_prior": -20.0, "learning_rate": 0.1},
    {"epoch": 2, "loss": 2.0, "bound": -1.2, "kl": 70.0, "log_prior": -10.0, "learning_rate": 0.05},
    {"epoch": 3, "loss": 1.5, "bound": -0.9, "kl": 50.0, "log_prior": -10.0, "learning_rate": 0.0},
]


def test_parts_of_the_objective_add_up_to_the_loss():
    ax = plots.training_curves(HISTORY, num_data=100)
    epochs, loss = line(ax, "loss")
    np.testing.assert_allclose(epochs, [1, 2, 3])
    bound, kl, log_prior = (line(ax, part)[1] for part in ("−bound", "KL / T", "−log p(Σ) / T"))
    np.testing.assert_allclose(bound + kl + log_prior, loss)
    assert "learning rate, up to 0.1" in legend(ax)


def test_parts_without_the_number_of_data_have_an_axis_of_their_own():
    figure = Figure()
    ax = plots.training_curves(HISTORY, ax=figure.subplots())
    (right,) = [other for other in figure.axes if other is not ax]
    np.testing.assert_allclose(line(right, "KL (right)")[1], [80, 70, 50])
    np.testing.assert_allclose(line(right, "−log p(Σ) (right)")[1], [20, 10, 10])
    assert {"KL (right)", "loss"} <= set(legend(ax))


def test_what_a_history_lacks_is_not_drawn():
    class Rows(list[dict[str, float]]):
        best_epoch = 2

    rows = Rows([{"loss": 3.0}, {"loss": 2.0, "validation_nll": 1.9}, {"loss": 1.0}])
    ax = plots.training_curves(rows)
    assert [values.tolist() for values in line(ax, "loss")] == [[1, 2, 3], [3, 2, 1]]
    assert [values.tolist() for values in line(ax, "validation NLL")] == [[2], [1.9]]
    assert legend(ax) == ["", "loss", "validation NLL", "best epoch, 2"]
    assert not plots.training_curves([]).lines


def draw_all(ax: Axes | None, generator: torch.Generator) -> list[Axes]:
    predictive = regression(20, 1, generator)
    x, two = torch.arange(20.0), torch.randn(20, 2, generator=generator)
    return [
        plots.predictive_band(x, predictive, ax=ax),
        plots.reliability_diagram(two.softmax(-1), x.long() % 2, ax=ax),
        plots.calibration_curve(predictive, x, ax=ax),
        plots.ood_histogram(x, x + 1, ax=ax),
        plots.ood_comparison(make_comparison(), ax=ax),
        plots.feature_density(lambda points: -points.square().sum(-1), two, ax=ax),
        plots.training_curves(HISTORY, ax=ax),
    ]


@pytest.mark.slow
def test_every_picture_draws_where_it_is_told_and_saves(generator: torch.Generator, tmp_path: Any):
    ax = Figure().subplots()
    assert all(drawn is ax for drawn in draw_all(ax, generator))
    new = draw_all(None, generator)
    assert len({id(drawn.figure) for drawn in new}) == 7
    for drawn in new:
        drawn.figure.savefig(tmp_path / "picture.png")  # type: ignore[union-attr]
        assert (tmp_path / "picture.png").stat().st_size > 5000


def test_pictures_leave_pyplot_alone(generator: torch.Generator):
    settings = dict(matplotlib.rcParams)
    draw_all(None, generator)
    assert pyplot.get_fignums() == []
    assert dict(matplotlib.rcParams) == settings


def test_a_missing_library_names_the_extra():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "try:\n    import lastlayer.plots\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'lastlayer[plots]'" in done.stdout


def test_pictures_of_the_wrong_shape_say_so(generator: torch.Generator):
    predictive = regression(4, 1, generator)
    with pytest.raises(ValueError, match="a band needs one input"):
        plots.predictive_band(torch.zeros(4, 2), predictive)
    with pytest.raises(ValueError, match=r"\(T, 2\), got \(4, 3\)"):
        plots.feature_density(lambda x: x[:, 0], torch.zeros(4, 3))
    with pytest.raises(ValueError, match="needs its target"):
        plots.calibration_curve(predictive)
    with pytest.raises(ValueError, match="nothing is broadcast"):
        plots.predictive_band(torch.zeros(4), predictive, (torch.zeros(4), torch.zeros(3)))


def test_the_wrong_kind_of_predictive_is_refused():
    logits, labels = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    with pytest.raises(TypeError, match="draw classes by reliability_diagram"):
        plots.predictive_band(torch.zeros(4), ll.SoftmaxPredictive(logits))
    with pytest.raises(TypeError, match="use calibration_curve"):
        plots.reliability_diagram(ll.GaussianPredictive(logits, logits, logits), labels)
