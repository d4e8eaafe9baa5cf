"""ONNX files predict as their estimators do, and say how to encode a row."""

import datetime
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lastlayer
from lastlayer.onnx import export_onnx
from lastlayer.sklearn import LastLayerClassifier, LastLayerRegressor
from lastlayer.tabular.estimators.classifier import HEADS
from tests.helpers import estimators

QUICK = estimators.QUICK | {"false_alarm_rate": 0.05}  # that of few rows is infinite


DAY = datetime.date(2024, 5, 7)


def house(random: np.random.Generator) -> dict[str, Any]:
    return {
        "town": random.choice(["Ulm", "Bonn", "Köln"]),
        "rooms": int(random.integers(1, 6)),
        "size": None if random.random() < 0.1 else random.uniform(20, 200),
        "garden": bool(random.random() < 0.5),
        "sold": DAY + datetime.timedelta(days=int(random.integers(100))),
        "name": f"no {random.random()}",
    }


def houses(count: int, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    return pl.DataFrame([house(random) for _ in range(count)])


STRANGE = pl.DataFrame(
    [
        {"town": "Mars", "rooms": 3, "size": 1e5, "garden": None, "sold": DAY, "name": "new"},
        {"town": None, "rooms": None, "size": None, "garden": True, "sold": None, "name": None},
    ]
)


def prices(table: pl.DataFrame) -> np.ndarray:
    size = table["size"].fill_null(100).to_numpy()
    return 1e5 + 3e3 * size * (table["town"].to_numpy() == "Bonn") + 1e4 * np.sin(size)


def classifier(head: str) -> LastLayerClassifier:
    table = houses(120)
    thirds = np.digitize(prices(table), [1e5, 2e5])
    return LastLayerClassifier(head, **QUICK).fit(table, np.array(["low", "mid", "top"])[thirds])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("onnx")


@pytest.fixture(scope="module")
def priced(folder):
    """An estimator, and what export_onnx returned for it."""
    table = houses(120)
    estimator = LastLayerRegressor(**QUICK).fit(table, prices(table))
    return estimator, export_onnx(estimator, folder / "priced.onnx")


@pytest.fixture(scope="module")
def linear(folder):
    """An estimator without hidden layers, of two targets, that went on to learn; and before."""
    table = houses(120).select("size", "rooms")
    targets = np.stack([prices(houses(120)), 1e-6 * table["rooms"].to_numpy()], 1)
    estimator = LastLayerRegressor(**QUICK | {"hidden_layers": ()})
    before = estimator.fit(table[:100], targets[:100]).predict(table)
    estimator.partial_fit(table[100:], targets[100:])
    return estimator, export_onnx(estimator, folder / "linear.onnx", level=0.5), before


@pytest.fixture(scope="module", params=["priced", "linear", *HEADS])
def exported(request, folder):
    """As `priced`, for all kinds of estimators."""
    if request.param in HEADS:
        estimator = classifier(request.param)
        return estimator, export_onnx(estimator, folder / f"{request.param}.onnx")
    return request.getfixturevalue(request.param)[:2]


def opened(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def run(session: Any, codes: np.ndarray) -> dict[str, np.ndarray]:
    assert [one.name for one in session.get_inputs()] == ["codes"]
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, {"codes": codes}), strict=True))


def expected(estimator, table: pl.DataFrame, level: float) -> dict[str, np.ndarray]:
    if isinstance(estimator, LastLayerClassifier):
        outputs = {"probabilities": estimator.predict_proba(table)}
    else:
        mean, stddev = estimator.predict(table, return_std=True)
        ends = estimator.predict_interval(table, level)
        outputs = {"mean": mean, "variance": stddev**2}
        outputs |= {"lower": ends[..., 0], "upper": ends[..., 1]}
    return outputs | {"ood_score": estimator.ood_score(table)}


def assert_same(actual, expected):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].dtype == np.float64
        np.testing.assert_allclose(actual[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def metadata(path: Path) -> dict[str, Any]:
    return {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}


@pytest.mark.slow
def test_one_file_predicts_as_the_estimator_for_any_number_of_rows(exported):
    estimator, file = exported
    level = metadata(file.path).get("interval_level", 0.9)
    session = opened(file.path)
    for table in (houses(1, 1), houses(7, 2), houses(1000, 3), STRANGE):
        table = table.select(estimator.feature_names_in_.tolist())
        codes = estimator.columns_.codes(table)
        assert_same(run(session, codes), expected(estimator, table, level))


@pytest.mark.slow
def test_the_largest_differences_are_known_and_all_digits_are_kept(exported):
    outputs = [output.name for output in onnx.load(exported[1].path).graph.output]
    assert list(exported[1].differences) == outputs
    assert 0 < max(exported[1].differences.values()) < 1e-10


@pytest.mark.slow
def test_metadata_say_what_is_predicted_by_what(exported):
    estimator, file = exported
    known = metadata(file.path)
    assert known["format"] == 1
    assert known["lastlayer"] == lastlayer.__version__
    assert known["columns"] == json.loads(json.dumps(estimator.columns_.to_json()))
    assert known["ood_threshold"] == estimator.ood_threshold_
    if isinstance(estimator, LastLayerClassifier):
        assert (known["kind"], known["classes"]) == ("classification", ["low", "mid", "top"])
    else:
        assert (known["kind"], tuple(known["target_shape"])) == (
            "regression",
            estimator.target_shape_,
        )
        assert known["interval_level"] == (0.5 if estimator.target_shape_ else 0.9)


@pytest.mark.slow
def test_a_file_holds_plain_operators_and_nothing_of_the_machine(exported):
    file = onnx.load(exported[1].path)
    assert [(opset.domain, opset.version) for opset in file.opset_import] == [("", 18)]
    assert not file.functions
    for part in (file.graph, *file.graph.node, *file.graph.initializer, *file.graph.input):
        assert not part.metadata_props
        assert not part.doc_string
    assert str(Path(lastlayer.__file__).parent).encode() not in file.SerializeToString()


def test_a_row_is_encoded_by_hand_from_the_metadata(priced):
    estimator, file = priced
    known, session = metadata(file.path), opened(file.path)
    assert {column["kind"] for column in known["columns"]} == set(known["codes"])

    def code(column, value):
        if value is None:
            return float("nan")
        if column["kind"] == "date":
            return (value - datetime.date(1970, 1, 1)).days
        if column["kind"] == "category":
            return column["levels"].index(value) if value in column["levels"] else -1
        return float(value)

    used = [column for column in known["columns"] if column["kind"] != "ignored"]
    for row in (*houses(5, 4).to_dicts(), *STRANGE.to_dicts()):
        codes = np.array([[code(column, row[column["name"]]) for column in used]])
        table = pl.DataFrame([row], schema=houses(2).schema)
        assert_same(run(session, codes), expected(estimator, table, known["interval_level"]))


def test_the_last_layer_is_that_of_partial_fit(linear):
    estimator, file, before = linear
    table = houses(120).select("size", "rooms")
    actual = run(opened(file.path), estimator.columns_.codes(table))["mean"]
    np.testing.assert_allclose(actual, estimator.predict(table), rtol=1e-9)
    assert (np.abs(actual / before - 1).max(0) > 1e-5).all()


def changed(path: Path, name: str) -> onnx.ModelProto:
    """A file in which a number is a little off."""
    file = onnx.load(path)
    weight = next(one for one in file.graph.initializer if one.name.endswith(name))
    value = onnx.numpy_helper.to_array(weight).copy()
    value.flat[0] *= 1.01
    weight.CopyFrom(onnx.numpy_helper.from_array(value, weight.name))
    return file


@pytest.mark.parametrize("name", ["network.head.mean", "units.scale", "encoding.scale", "location"])
def test_a_file_that_predicts_otherwise_is_refused(name, priced, tmp_path, monkeypatch):
    estimator, file = priced
    monkeypatch.setattr(
        "lastlayer.tabular.onnx.export.translate", lambda *_: changed(file.path, name)
    )
    with pytest.raises(
        RuntimeError, match=r"differ from those of the model by mean [\d.e-]+, variance .* was not"
    ):
        export_onnx(estimator, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_stays_until_there_is_better(priced, tmp_path, monkeypatch):
    estimator, file = priced
    path = tmp_path / "model.onnx"
    path.write_text("older")
    monkeypatch.setattr("lastlayer.tabular.onnx.export.translate", lambda *_: onnx.ModelProto())
    with pytest.raises(onnx.checker.ValidationError):
        export_onnx(estimator, path)
    assert path.read_text() == "older"
    monkeypatch.setattr("lastlayer.tabular.onnx.export.translate", lambda *_: onnx.load(file.path))
    assert export_onnx(estimator, path) == (path, file.differences)
    assert path.read_bytes() == file.path.read_bytes()
    assert list(tmp_path.iterdir()) == [path]


def test_only_trained_estimators_are_exported(priced, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        export_onnx(LastLayerRegressor(), tmp_path / "model.onnx")
    pipeline: Any = make_pipeline(StandardScaler(), priced[0])
    with pytest.raises(TypeError, match="got Pipeline; of a pipeline"):
        export_onnx(pipeline, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        export_onnx(priced[0], tmp_path / "model.onnx", level=90)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(priced, tmp_path, monkeypatch):
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(OSError, match=r"cannot write into .*letter: .*; choose another folder"):
        export_onnx(priced[0], tmp_path / "letter" / "model.onnx")
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        export_onnx(priced[0], tmp_path)

    def forbidden(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.mkstemp", forbidden)
    with pytest.raises(PermissionError, match=r"cannot write into .*: Permission denied"):
        export_onnx(priced[0], tmp_path / "model.onnx")
