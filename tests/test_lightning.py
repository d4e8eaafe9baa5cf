"""Heads in Lightning train as they do elsewhere."""

import copy
import os
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import lastlayer as ll
from lastlayer.lightning import HeadCallback, NetworkModule
from tests.helpers.networks import classes, classification, curve, regression
from tests.helpers.processes import NUM_PROCESSES, run_together

# Lightning's: advice that is not for tests on few examples, and what torch has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning"),
]


def trainer(**options: Any) -> Any:
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 2,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "log_every_n_steps": 1,
    }
    return lightning.Trainer(**defaults | options)


def loader(data: tuple[Tensor, Tensor], **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*data), batch_size=8, **options)


class Anyones(lightning.LightningModule):
    """A module that knows nothing of heads but that they return a loss."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network: Any = network
        self.dropout = nn.Dropout(0.0)

    def training_step(self, batch: Any) -> Tensor:
        loss = self.network(*batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Parts(lightning.Callback):
    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.seen.append(dict(trainer.callback_metrics))


def test_anyones_module_trains_as_a_loop_does_and_logs_the_parts() -> None:
    data = classes()
    module = Anyones(classification(generative=True))
    expected = copy.deepcopy(module.network)
    parts = Parts()
    trainer(callbacks=[HeadCallback(), parts]).fit(module, loader(data))

    expected.head.num_data = len(data[1])
    expected.head.observe(data[1])
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.01)
    seen = []
    for _ in range(2):
        for batch in loader(data):
            optimizer.zero_grad()
            elbo = expected.elbo(*batch)
            expected(*batch).backward()
            optimizer.step()
            seen.append(elbo)
    assert_close(module.network.state_dict(), expected.state_dict())
    for metrics, elbo in zip(parts.seen, seen, strict=True):
        assert_close(metrics["elbo/bound"].double(), elbo.bound.detach())
        assert_close(metrics["elbo/kl"].double(), elbo.kl.detach())


def test_the_last_layer_is_solved_at_the_end() -> None:
    data = curve()
    module = NetworkModule(*parts_of(regression()), solve=True)
    run = trainer()
    run.fit(module, loader(data, shuffle=True))
    head = copy.deepcopy(module.network.head)
    with torch.no_grad():
        head.fit_features(module.network.backbone(data[0]), data[1])
    assert_close(module.network.head.mean, head.mean)
    assert module.network.head.num_data == len(data[1])
    assert module.training is True
    (nll,) = run.validate(module, loader(curve(1)), verbose=False)
    inputs, target = curve(1)
    with torch.no_grad():
        expected = -module(inputs).log_prob(target).mean()
    assert nll["val_nll"] == pytest.approx(float(expected), rel=1e-6)
    predictions = run.predict(module, loader(data))
    assert_close(torch.cat([one.mean for one in predictions]), module(data[0]).mean)


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_the_last_layer_is_solved_in_any_precision_of_training(precision: str) -> None:
    torch.set_default_dtype(torch.float32)
    inputs, target = (part.float() for part in curve())
    module = Anyones(regression())
    run = trainer(callbacks=[HeadCallback(solve=True)], precision=precision)
    run.fit(module, loader((inputs, target)))
    network = module.network
    expected = copy.deepcopy(network.head)
    inputs, target = (part.to(network.head.mean.dtype) for part in (inputs, target))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, "mixed" in precision):
        features = network.backbone(inputs).to(network.head.mean.dtype)
    expected.fit_features(features, target)
    assert_close(network.head.mean, expected.mean)


def test_weight_decay_of_a_head_is_warned_of() -> None:
    class Decaying(Anyones):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    run = trainer(callbacks=[HeadCallback()], max_epochs=1)
    with pytest.warns(UserWarning, match="weight decay reaches the head"):
        run.fit(Decaying(regression()), loader(curve()))


def parts_of(network: ll.Network) -> tuple[nn.Module, ll.Head]:
    return network.backbone, network.head


def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    data = classes()
    whole, first, second = (NetworkModule(*parts_of(classification())) for _ in range(3))
    trainer(max_epochs=4).fit(whole, loader(data))
    halfway = trainer(max_epochs=2)
    halfway.fit(first, loader(data))
    halfway.save_checkpoint(tmp_path / "half.ckpt")
    trainer(max_epochs=4).fit(
        second, loader(data), ckpt_path=tmp_path / "half.ckpt", weights_only=True
    )
    assert_close(second.state_dict(), whole.state_dict())


def trained(batch_size: int, **options: Any) -> dict[str, Tensor]:
    module = NetworkModule(*parts_of(classification(generative=True)), solve=True)
    data = TensorDataset(*classes(count=32))
    trainer(**options).fit(module, DataLoader(data, batch_size=batch_size))
    return module.state_dict()


def train_together(rank: int, folder: Path) -> None:
    os.environ |= {  # as torchrun does
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(NUM_PROCESSES),
        "LOCAL_WORLD_SIZE": str(NUM_PROCESSES),
        "TORCHELASTIC_RUN_ID": "test",
    }
    state = trained(32 // NUM_PROCESSES, devices=NUM_PROCESSES, strategy="ddp")
    torch.save(state, folder / str(rank))


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path: Path) -> None:
    run_together(train_together, tmp_path)
    expected = trained(32)
    for rank in range(NUM_PROCESSES):
        assert_close(torch.load(tmp_path / str(rank), weights_only=True), expected)


class Curve(lightning.LightningDataModule):
    def train_dataloader(self) -> DataLoader[Any]:
        return loader(curve())

    def val_dataloader(self) -> DataLoader[Any]:
        return loader(curve(1))


@pytest.mark.filterwarnings("ignore::jsonargparse._deprecated.JsonargparseDeprecationWarning")
def test_the_command_line_of_lightning_makes_and_trains_the_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["program"])
    arguments = [
        "fit",
        "--model.backbone=torch.nn.Linear",
        "--model.backbone.in_features=2",
        "--model.backbone.out_features=6",
        "--model.head=lastlayer.Regression",
        "--model.head.num_features=6",
        "--model.head.num_outputs=1",
        "--model.head.num_data=1",
        "--model.learning_rate=0.01",
        "--trainer.logger=false",
        "--trainer.enable_checkpointing=false",
        "--trainer.enable_progress_bar=false",
        "--trainer.accelerator=cpu",
        "--trainer.max_epochs=1",
    ]
    options: dict[str, Any] = {"save_config_callback": None, "seed_everything_default": 0}
    made = LightningCLI(NetworkModule, Curve, args=arguments, **options)
    assert isinstance(made.model.network.head, ll.Regression)
    assert made.model.options.learning_rate == 0.01
    assert made.model.network.head.num_data == len(curve()[1])  # of the datamodule
    assert made.trainer.callback_metrics["val_nll"].isfinite()


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return zip(*curve(), strict=True)


def test_what_is_missing_is_said() -> None:
    stream = DataLoader(Stream(), batch_size=8)
    with pytest.raises(ValueError, match=r"HeadCallback\(num_data=…\)"):
        trainer(callbacks=[HeadCallback()]).fit(Anyones(regression()), stream)
    module = Anyones(regression())
    trainer(callbacks=[HeadCallback(37)]).fit(module, stream)
    assert module.network.head.num_data == 37
    plain = Anyones(nn.Linear(2, 1))
    with pytest.raises(ValueError, match="Anyones has no head inside"):
        trainer(callbacks=[HeadCallback()]).fit(plain, loader(curve()))


def test_a_step_that_fails_leaves_nothing_recording() -> None:
    class Failing(Anyones):
        def training_step(self, batch: Any) -> Tensor:
            raise RuntimeError("boom")

    module = Failing(regression())
    with pytest.raises(RuntimeError, match="boom"):
        trainer(callbacks=[HeadCallback()]).fit(module, loader(curve()))
    assert module.network.head._recorder is None
