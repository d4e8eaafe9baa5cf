"""Pictures of made-up runs of a metric that is better when higher."""

from experiments.harness import figures
from experiments.harness.statistics import Description, Estimate, Metric, Published, Runs

SHARE = Metric("share", "share of right answers", 1, scale=100, higher_is_better=True)


def runs(**values: float) -> Runs:
    """One seed of each method on one column."""
    cells = {
        (name, "digits"): [{"config": {"seed": 0}, "metrics": {"share": value}}]
        for name, value in values.items()
    }
    methods = {name: Description(name, single_pass=True) for name in values}
    return Runs(cells, methods, ("digits",))


def test_low_values_are_at_the_edge_where_higher_is_better():
    found = runs(a=0.95, b=0.94, c=0.93, d=0.95, e=0.02)
    published = Published({("a", "digits", "share"): Estimate(95.5, 0.1)})
    (panel,) = figures.draw(found, SHARE, published).axes
    low, high = panel.get_xlim()
    assert 50 < low < 93
    assert 95.5 < high < 100
    assert [text.get_text() for text in panel.texts] == ["2.00"]
