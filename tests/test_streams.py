"""Data sets that are read a batch at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import lastlayer as ll
from lastlayer import ood
from lastlayer.streams import ParquetStream

COUNT = 205


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)


def table() -> dict[str, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(COUNT, 3)).astype(np.float32)
    y = x[:, 0] + 0.1 * random.normal(size=COUNT).astype(np.float32)
    return {"x": x, "z": 2 * x[:, 1], "y": y, "label": (y > 0).astype(np.int64), "w": y**2}


def write(folder: Path, lists: bool = True) -> Path:
    """Two files with several row groups each."""
    columns = table()
    columns["x"] = pa.FixedSizeListArray.from_arrays(columns["x"].reshape(-1), 3)
    if not lists:
        columns["x"] = columns["x"].cast(pa.list_(pa.float32()))
    whole = pa.table(columns)
    for name, rows in (("a", slice(0, 90)), ("b", slice(90, COUNT))):
        part = whole.slice(rows.start, rows.stop - rows.start)
        pa.parquet.write_table(part, folder / f"{name}.parquet", row_group_size=40)
    return folder


def joined(stream: Any) -> list[Tensor]:
    return [torch.cat(parts) for parts in zip(*stream, strict=True)]


@pytest.mark.parametrize("lists", [True, False])
def test_batches_are_those_of_the_whole_table(tmp_path: Path, lists: bool) -> None:
    columns = table()
    stream = ParquetStream(write(tmp_path, lists), ["x", "z"], "label", "w", batch_size=32)
    batches = list(stream)
    assert [len(batch[0]) for batch in batches] == [32] * 6 + [13]
    assert len(stream) == 7
    assert stream.num_rows == COUNT
    inputs, target, weight = joined(stream)  # a second time
    expected = np.concatenate([columns["x"], columns["z"][:, None]], 1)
    assert_close(inputs, torch.from_numpy(expected))
    assert_close(target, torch.from_numpy(columns["label"]))
    assert_close(weight, torch.from_numpy(columns["w"]))


def test_processes_have_parts_of_the_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parts = write(tmp_path), []
    for rank in range(2):

        def of(cls: Any, distributed: bool, device: Any, rank: int = rank) -> Any:
            found = cls.__new__(cls)
            found.rank, found.size = rank, 2
            return found

        monkeypatch.setattr("lastlayer.streams.Processes.of", classmethod(of))
        parts.append(joined(ParquetStream(path, "z", "y", distributed=True))[1])
    assert_close(torch.cat(parts).sort().values, torch.from_numpy(table()["y"]).sort().values)
    assert min(map(len, parts)) > 80
    (tmp_path / "one").mkdir()
    pa.parquet.write_table(pa.table({"z": [1.0], "y": [1.0]}), tmp_path / "one" / "a.parquet")
    with pytest.raises(ValueError, match=r"1 row groups, which 2 processes cannot share"):
        ParquetStream(tmp_path / "one", "z", "y", distributed=True)


def test_posttraining_and_densities_are_those_of_the_data_in_memory(tmp_path: Path) -> None:
    columns = {name: torch.from_numpy(value) for name, value in table().items()}
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    path = write(tmp_path)
    streamed = ll.posttrain(network, ParquetStream(path, "x", "y", batch_size=50), "regression")
    whole = ll.posttrain(network, (columns["x"], columns["y"]), "regression")
    assert_close(streamed.head.mean, whole.head.mean)
    labelled = ParquetStream(path, "x", "label", batch_size=50)
    density = ood.FeatureDensity.from_model(network[:2], labelled, num_classes=2, progress=False)
    data = (columns["x"], columns["label"])
    expected = ood.FeatureDensity.from_model(network[:2], data, num_classes=2, progress=False)
    assert_close(density.state_dict(), expected.state_dict())


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    odd = {"town": ["Ulm", "Bonn"], "long": [[1.0], [1.0, 2.0]], "gap": [1.0, None], "y": [1, 2]}
    pa.parquet.write_table(pa.table(odd), path)
    with pytest.raises(ValueError, match="has no column 'size'; it has"):
        ParquetStream(path, "size")
    with pytest.raises(TypeError, match="'town' holds object and not numbers"):
        list(ParquetStream(path, "town"))
    with pytest.raises(ValueError, match="'long' holds lists of several lengths"):
        list(ParquetStream(path, "long"))
    with pytest.raises(ValueError, match="a weight is for a target"):
        ParquetStream(path, "y", weight="y")
    (batch,) = ParquetStream(path, "gap", "y")
    assert batch[0].isnan().tolist() == [[False], [True]]  # as it is in numbers
