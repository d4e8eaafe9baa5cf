"""Joint predictives as tensors: shapes, errors, memory, compiled, exported, stacked, cast."""

import copy
import io
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.testing import assert_close
from torch.utils import _pytree as pytree

import lastlayer as ll
from tests.helpers.cases import CASES, JOINTS, NUM_FEATURES, NUM_OUTPUTS, make_examples, make_head
from tests.helpers.memory import backpropagated, largest_tensor

K = NUM_OUTPUTS
every_family = pytest.mark.parametrize("name", JOINTS)


@every_family
def test_leading_dimensions_are_only_more_gaussians(name: str, generator: torch.Generator) -> None:
    head = make_head(name)
    features, _ = make_examples(head, 2, 3, 4)
    target = torch.randn(2, 3, 4, K, generator=generator)
    joint = head.joint(features)
    assert joint.batch_shape == (2, 3)
    assert joint.sample((5, 2), generator).shape == (5, 2, 2, 3, 4, K)
    for i in range(2):
        for j in range(3):
            alone = head.joint(features[i, j])
            torch.testing.assert_close(
                joint[i, j].log_prob(target[i, j]), alone.log_prob(target[i, j])
            )
            torch.testing.assert_close(joint.log_prob(target)[i, j], alone.log_prob(target[i, j]))
            torch.testing.assert_close(joint.entropy()[i, j], alone.entropy())
            torch.testing.assert_close(joint.full_covariance[i, j], alone.full_covariance)


@every_family
def test_no_points_have_density_one(name: str) -> None:
    head = make_head(name)
    joint = head.joint(make_examples(head, 2, 0)[0])
    torch.testing.assert_close(joint.log_prob(torch.empty(2, 0, K)), torch.zeros(2))
    torch.testing.assert_close(joint.entropy(), torch.zeros(2))
    assert joint.sample(5).shape == (5, 2, 0, K)
    assert joint.full_covariance.shape == (2, 0, 0)
    assert head.joint(make_examples(head, 0, 3)[0]).log_prob(torch.empty(0, 3, K)).shape == (0,)


def test_a_single_output_takes_targets_without_its_dimension(generator: torch.Generator) -> None:
    head = ll.Regression(4, num_data=10)
    joint = head.joint(torch.randn(3, 4, generator=generator))
    target = torch.randn(3, generator=generator)
    torch.testing.assert_close(joint.log_prob(target), joint.log_prob(target.unsqueeze(-1)))
    with pytest.raises(ValueError, match="nothing is broadcast"):
        joint.log_prob(torch.zeros(4))


def test_a_head_without_gaussian_outputs_says_so() -> None:
    head = make_head("generative-diagonal-diagonal")
    with pytest.raises(TypeError, match="GenerativeClassification has no Gaussian outputs"):
        head.joint(make_examples(head, 3)[0])


def test_features_of_one_point_are_refused() -> None:
    head = make_head("regression-shared-diagonal-identity")
    with pytest.raises(ValueError, match=r"joint needs the features of several points"):
        head.joint(make_examples(head)[0])
    with pytest.raises(ValueError, match="must end in num_features"):
        head.joint(torch.zeros(3, NUM_FEATURES + 2))


# -------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize(("num_points", "num_features"), [(64, 1000), (2000, 64)])
@pytest.mark.parametrize("covariance", ["dense", "diagonal", "low_rank", "shared", "kronecker"])
def test_memory_is_that_of_points_times_features(
    covariance: str, num_points: int, num_features: int
) -> None:
    num_outputs = 2
    head = ll.Regression(
        num_features, num_outputs, num_data=10, covariance=covariance, dtype=torch.float32
    )
    features = torch.randn(num_points, num_features, dtype=torch.float32, requires_grad=True)
    target = torch.zeros(num_points, num_outputs, dtype=torch.float32)

    def use() -> None:
        joint = head.joint(features)
        value = joint.log_prob(target) + joint.entropy() + joint.mutual_information()
        backpropagated(value + joint.sample(3).sum())

    columns = num_features + 3  # low rank has three more
    rows = num_points + columns  # stacked for the factorisation
    factorised = num_outputs * rows * min(num_points, columns)
    stored = num_outputs * 128 * num_features  # a block of rows of the triangular factors
    bound = max(num_outputs * num_points * columns, factorised, stored)
    assert largest_tensor(use) <= bound
    assert bound < num_points * num_features**2 / 20


# ------------------------------------------------------------------------------ other programs


class _Joint(nn.Module):
    """A head whose call is its joint predictive."""

    def __init__(self, head: ll.Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: Tensor) -> ll.JointPredictive:
        return self.head.joint(features)


class _Numbers(_Joint):
    """What is computed from a joint predictive."""

    def forward(self, features: Tensor, target: Tensor, base: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        joint = self.head.joint(features)
        return {
            "log_prob": joint.log_prob(target),
            "entropy": joint.entropy(),
            "variance": joint.variance,
            "covariance": joint.full_covariance,
            "draws": joint.sample_from(base),
        }


def arguments(head: ll.Head, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    features, _ = make_examples(head, *batch, 4)
    target = torch.randn(*batch, 4, K, generator=generator)
    base = torch.randn(3, *head.joint(features).base_shape(), generator=generator)
    return features, target, base


@pytest.mark.slow
@every_family
@pytest.mark.usefixtures("_fresh_compiler")
def test_compiled_joint_predictives_equal_eager(name: str) -> None:
    head = make_head(name)
    inputs = arguments(head, 2)
    with torch.no_grad():
        compiled = torch.compile(_Joint(head), fullgraph=True, backend="aot_eager")
        joint = compiled(inputs[0])
        assert type(joint) is type(head.joint(inputs[0]))
        assert_close(pytree.tree_leaves(joint), pytree.tree_leaves(head.joint(inputs[0])))
        numbers = _Numbers(head)
        compiled = torch.compile(numbers, fullgraph=True, backend="aot_eager")
        assert_close(compiled(*inputs), numbers(*inputs))


@pytest.mark.slow
@every_family
def test_a_saved_export_has_the_same_joint_at_other_batch_sizes(name: str) -> None:
    head = make_head(name)
    features, target, base = arguments(head, 2)
    batch = torch.export.Dim("batch")
    file = io.BytesIO()
    shapes = ({0: batch},)
    torch.export.save(torch.export.export(_Joint(head), (features,), dynamic_shapes=shapes), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    features, target, base = arguments(head, 5)
    assert_close(pytree.tree_leaves(loaded(features)), pytree.tree_leaves(head.joint(features)))
    exported = torch.export.export(_Numbers(head), (features, target, base))
    assert_close(exported.module()(features, target, base), _Numbers(head)(features, target, base))


@every_family
def test_joints_of_stacked_heads_equal_a_loop_over_them(name: str) -> None:
    heads = [_Numbers(make_head(name, seed)) for seed in range(3)]
    inputs = arguments(heads[0].head, 2)
    template = copy.deepcopy(heads[0]).to("meta")

    def call(params: dict[str, Tensor], buffers: dict[str, Tensor]) -> dict[str, Tensor]:
        return functional_call(template, (params, buffers), inputs)

    stacked = vmap(call)(*stack_module_state(heads))
    for index, head in enumerate(heads):
        assert_close({key: value[index] for key, value in stacked.items()}, head(*inputs))


@every_family
def test_joint_predictives_are_pytrees_that_index_move_and_pickle(name: str) -> None:
    head = make_head(name)
    features, *_ = arguments(head, 4, 2)
    joint = head.joint(features)
    tensors, structure = pytree.tree_flatten(joint)
    assert [id(tensor) for tensor in tensors] == [id(tensor) for tensor in vars(joint).values()]
    assert type(pytree.tree_unflatten(tensors, structure)) is type(joint)
    for index in (1, slice(1, 3), (..., 0), torch.tensor([3, 0]), (None, 2, 1)):
        chosen = torch.arange(8).reshape(4, 2)[index]
        part, expected = joint[index], head.joint(features.flatten(0, 1)[chosen])
        assert part.batch_shape == chosen.shape
        assert_close(pytree.tree_leaves(part), pytree.tree_leaves(expected))
    with pytest.raises(IndexError, match="3 indices for a batch of shape"):
        joint[0, 0, 0]
    assert len(joint) == 4
    assert {tensor.dtype for tensor in pytree.tree_leaves(joint.to(torch.float32))} == {
        torch.float32
    }
    same = pickle.loads(pickle.dumps(joint.detach()))
    assert_close(pytree.tree_leaves(same), tensors, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@every_family
def test_narrow_heads_have_the_joint_of_wide_ones_to_their_own_accuracy(
    name: str, dtype: torch.dtype
) -> None:
    narrow, wide = make_head(name, dtype=dtype), CASES[name](dtype=torch.float64)
    wide.load_state_dict(narrow.state_dict())
    features, _ = make_examples(narrow, 2, 5, dtype=dtype)
    with torch.no_grad():
        joint, exact = narrow.joint(features), wide.joint(features.double())
    assert {tensor.dtype for tensor in pytree.tree_leaves(joint)} == {torch.float32}
    # see ROUNDINGS in tests/deployment/test_precision.py
    tolerance = 12 * torch.finfo(dtype).eps / 2
    for value in ("mean", "full_covariance"):
        expected = getattr(exact, value)
        size = max(1.0, float(expected.abs().max()))
        assert_close(getattr(joint, value).double(), expected, rtol=0, atol=tolerance * size)


@every_family
def test_autocast_rounds_means_and_factors_and_nothing_else(name: str) -> None:
    head = make_head(name, dtype=torch.float32)
    features, target, base = (value.float() for value in arguments(head.double(), 2))
    head.float()
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            joint = head.joint(features)
        exact = head.joint(features)
    assert {tensor.dtype for tensor in pytree.tree_leaves(joint)} == {torch.float32}
    assert_close(joint.noise_variance, exact.noise_variance, rtol=1e-6, atol=0)
    tolerance = 12 * torch.finfo(torch.bfloat16).eps / 2
    for value in ("mean", "full_covariance"):
        size = max(1.0, float(getattr(exact, value).abs().max()))
        difference = (getattr(joint, value) - getattr(exact, value)).abs().max()
        assert float(difference) < tolerance * size
    assert joint.sample_from(base).shape == (3, *target.shape)
