"""The cache of features: one evaluation, in memory or mapped, never half a file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import lastlayer as ll
from lastlayer.heads import _conjugate
from lastlayer.posttraining import cache_features

T, N = 50, 6


@pytest.fixture
def backbone() -> nn.Module:
    return nn.Sequential(nn.Linear(4, N), nn.BatchNorm1d(N), nn.Dropout(0.5), nn.Tanh())


def make_data(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    inputs = torch.randn(T, 4, generator=generator)
    target = torch.randn(T, 2, generator=generator)
    return inputs, target, torch.rand(T, generator=generator)


def test_features_are_those_of_evaluation_and_nothing_moves(
    backbone: nn.Module, generator: torch.Generator
) -> None:
    data = make_data(generator)
    backbone[2].eval()  # type: ignore[index]
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    cached = cache_features(backbone, data, batch_size=8)
    assert [part.training for part in backbone.modules()] == [True, True, True, False, True]
    assert all(torch.equal(before[name], value) for name, value in backbone.state_dict().items())
    assert not cached.features.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(cached.features, backbone.eval()(data[0]))
    assert torch.equal(cached.target, data[1])
    assert cached.weight is not None
    assert torch.equal(cached.weight, data[2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_mapped_cache_equals_one_in_memory(
    dtype: torch.dtype,
    generator: torch.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    backbone = nn.Linear(4, N, dtype=dtype)
    inputs, target, weight = make_data(generator)
    data = (inputs.to(dtype), target, weight)
    memory = cache_features(backbone, data, batch_size=8)
    opened = []
    original = torch.from_file

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        opened.append(args[0])
        return original(*args, **kwargs)

    monkeypatch.setattr(torch, "from_file", spy)
    # spills over after three batches
    mapped = cache_features(backbone, data, batch_size=8, max_memory_bytes=3 * 8 * N * 2)
    assert len(opened) == len(data)
    assert list(tmp_path.iterdir()) == []  # the files are gone, the mappings live
    kept = cache_features(backbone, data, batch_size=8, path=tmp_path / "cache.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["cache.safetensors"]
    stored = load_file(tmp_path / "cache.safetensors")
    for other in (mapped, kept):
        assert all(torch.equal(one, two) for one, two in zip(memory, other, strict=True))  # type: ignore[arg-type]
    for name, value in memory._asdict().items():
        assert torch.equal(stored[name], value)
    with pytest.raises(FileExistsError, match="delete it"):
        cache_features(backbone, data, path=tmp_path / "cache.safetensors")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("keep", [True, False])
def test_an_interrupted_run_leaves_no_file(
    error: type[BaseException],
    keep: bool,
    backbone: nn.Module,
    generator: torch.Generator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    inputs, target, _ = make_data(generator)

    def stream() -> Iterator[tuple[Tensor, Tensor]]:
        yield inputs[:20], target[:20]
        yield inputs[20:40], target[20:40]
        assert len(list(tmp_path.iterdir())) == 2  # partial files of features and targets
        assert not (tmp_path / "cache").exists()
        raise error

    path = tmp_path / "cache" if keep else None
    with pytest.raises(error):
        cache_features(backbone, stream(), path=path, max_memory_bytes=1)
    assert list(tmp_path.iterdir()) == []


def test_leading_dimensions_become_rows(generator: torch.Generator) -> None:
    inputs = torch.randn(5, 3, 2, 4, generator=generator)
    target = torch.randint(7, (5, 3, 2), generator=generator)
    cached = cache_features(nn.Identity(), (inputs, target), batch_size=2)
    assert torch.equal(cached.features, inputs.reshape(30, 4))
    assert torch.equal(cached.target, target.flatten())
    assert cached.weight is None
    with pytest.raises(ValueError, match="target must begin with"):
        cache_features(nn.Identity(), (inputs, target[:, 0]))


def test_what_is_no_feature_is_an_error(backbone: nn.Module, generator: torch.Generator) -> None:
    inputs, target, weight = make_data(generator)
    with pytest.raises(ValueError, match="hold targets"):
        cache_features(backbone, (inputs,))
    with pytest.raises(ValueError, match="no examples"):
        cache_features(backbone, (inputs[:0], target[:0]))
    with pytest.raises(TypeError, match="features"):
        cache_features(nn.Flatten(0), (inputs, target))
    with pytest.raises(ValueError, match="some had not"):
        cache_features(backbone, [(inputs, target), (inputs, target, weight)])
    with pytest.raises(ValueError, match="as wide in every batch"):
        cache_features(nn.Identity(), [(inputs, target), (inputs[:, :2], target)])
    with pytest.raises(ValueError, match="batch_size"):
        cache_features(backbone, (inputs, target), batch_size=0)


@pytest.mark.parametrize("kind", ["regression", "generative"])
@pytest.mark.parametrize("weighted", [False, True])
def test_an_exact_fit_in_chunks_equals_one_at_once(
    kind: str, weighted: bool, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = 3 + torch.randn(T, N, generator=generator)  # means far from zero
    weight = torch.rand(T, generator=generator) if weighted else None
    make: Any = ll.Regression if kind == "regression" else ll.GenerativeClassification
    target = torch.randint(2, (T,), generator=generator)
    if kind == "generative":
        target[:17] = 0  # a class that some chunks miss
    values = features @ torch.randn(N, 2, generator=generator) if make is ll.Regression else target
    states = []
    for rows in (10**6, 7):
        monkeypatch.setattr(_conjugate, "CHUNK", rows * N)
        torch.manual_seed(0)
        head = make(N, 2, num_data=T)
        head.fit_exact(features, values, weight, estimate_noise=True)
        head.update(features, values, weight)
        states.append(head.state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-8, atol=1e-10)
