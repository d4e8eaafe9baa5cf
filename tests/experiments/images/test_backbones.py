"""Networks for images, and the random changes of images."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import lastlayer as ll
from experiments.backbones import small, wrn
from experiments.backbones.pixels import FlipAndShift, Pixels


def pictures(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator)


def test_pixels_are_standardised_by_the_training_images():
    images = pictures(20)
    values = Pixels.of(images)(images).double()
    assert_close(values.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-5, rtol=0)
    spread = values.var((0, 2, 3), correction=0)
    assert_close(spread, torch.ones(3).double(), atol=1e-5, rtol=0)


def test_whitened_patches_are_uncorrelated_with_unit_variance_before_the_ridge():
    values = F.avg_pool2d(Pixels.of(pictures(50))(pictures(50)), 3, 1)  # with neighbours alike
    white = small.whitening(values)(values).detach()
    plus, minus = white.chunk(2, 1)
    assert_close(plus, -minus, atol=1e-5, rtol=0)
    rows = plus.permute(0, 2, 3, 1).reshape(-1, plus.shape[1]).double()
    patches = F.unfold(values, 2).transpose(1, 2).flatten(0, 1).double()
    variances = torch.linalg.eigvalsh(patches.T @ patches / len(patches)).flip(0)
    expected = (variances / (variances + small.RIDGE)).diag()
    assert_close(rows.T @ rows / len(rows), expected, atol=1e-4, rtol=0)


def test_the_small_network_begins_with_copies_and_learns_no_whitening():
    torch.manual_seed(0)
    network = small.features(pictures(8))
    assert network(pictures(4)).shape == (4, small.NUM_FEATURES)
    block: Any = network[3]
    images = torch.randn(2, 24, 6, 6)
    assert_close(block.conv1(images)[:, :24], images)
    assert not network[1].weight.requires_grad
    trained = [name for name, p in network.named_parameters() if p.requires_grad]
    assert sum("norm" in name for name in trained) == 6  # biases alone
    assert len(trained) == 12


def test_biases_of_norms_move_by_their_own_learning_rate():
    torch.manual_seed(0)
    head = ll.DiscriminativeClassification(small.NUM_FEATURES, 2, num_data=4)
    model: Any = ll.Network(small.features(pictures(8)), head)
    data, found = (pictures(4), torch.tensor([0, 1, 0, 1])), {}

    def optimizer(groups, lr):
        for group in groups:
            for parameter in group["params"]:
                found[id(parameter)] = group["lr"], group["weight_decay"]
        return torch.optim.SGD(groups, lr)

    ll.fit(
        model,
        data,
        epochs=1,
        learning_rate=0.5,
        weight_decay=0.1,
        optimizer=optimizer,
        groups=small.GROUPS,
        progress=False,
    )
    assert found[id(model.backbone[3].norm2.bias)] == (32.0, pytest.approx(0.1 / 64))
    assert found[id(model.backbone[3].conv1.weight)] == (0.5, 0.1)
    assert found[id(model.head.mean)] == (0.5, 0.0)


def test_the_wide_network_has_the_published_number_of_parameters():
    with torch.device("meta"):
        blocks = [wrn.Block(160, 160, 1), wrn.Block(160, 320, 2)]
    assert sum(p.numel() for p in blocks[0].parameters()) == 2 * (9 * 160 * 160 + 2 * 160)
    network = wrn.features(pictures(2), depth=10, widen=1)
    assert network(pictures(2)).shape == (2, 64)
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 1 + 2 * 3 + 2  # one block a group; two change the width
    with pytest.raises(ValueError, match="6n"):
        wrn.features(pictures(2), depth=12)


@pytest.mark.slow
def test_the_papers_network_takes_a_step():
    torch.manual_seed(0)
    head = ll.DiscriminativeClassification(wrn.NUM_FEATURES, 10, num_data=2)
    model: Any = ll.Network(wrn.features(pictures(2)), head)
    number = sum(p.numel() for p in model.backbone.parameters())
    assert number == pytest.approx(36.5e6, rel=0.005)  # Zagoruyko & Komodakis, table 4
    before = model.backbone[2].conv1.weight.detach().clone()
    data = (pictures(2), torch.tensor([0, 1]))
    history = ll.fit(model, data, epochs=1, optimizer=torch.optim.SGD, progress=False)
    assert history[0]["gradient_norm"] > 0
    assert not torch.equal(model.backbone[2].conv1.weight, before)


def test_augmented_images_are_windows_of_the_reflected_image_or_its_mirror():
    images = pictures(6)
    torch.manual_seed(3)
    changed = FlipAndShift(2)(images)
    assert changed.dtype == torch.uint8
    padded = F.pad(images.float(), [2] * 4, mode="reflect").byte()
    seen = set()
    for image, other in zip(padded, changed, strict=True):
        windows = {
            (down, right, flip): (window.flip(-1) if flip else window)
            for down in range(5)
            for right in range(5)
            for flip in (False, True)
            for window in [image[:, down : down + 32, right : right + 32]]
        }
        matching = [key for key, window in windows.items() if torch.equal(window, other)]
        assert matching
        seen.add(matching[0])
    assert len(seen) > 2
    torch.manual_seed(3)
    assert torch.equal(FlipAndShift(2)(images), changed)
