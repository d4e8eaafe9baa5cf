"""Forms of data, errors, and pools that do not fit into memory."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lastlayer as ll
from lastlayer import acquisition
from lastlayer.acquisition.selecting import METHODS

OF_NUMBERS = [
    name for name in METHODS if name != "margin"
]  # which methods can choose by regression


@pytest.fixture
def model() -> ll.Network:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.5))
    head = ll.Regression(8, 1, num_data=20, bias=True)
    network = ll.Network(backbone, head)
    x = torch.randn(20, 3)
    ll.fit(network, (x, x[:, :1]), epochs=2, progress=False)
    return network


POOL = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
SEEN = torch.randn(20, 3, generator=torch.Generator().manual_seed(2))


def choose(model: nn.Module, pool: object, labelled: object = SEEN, **options: object) -> Tensor:
    count = options.pop("batch_size", 5)
    return acquisition.select(model, labelled, pool, count, progress=False, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("method", OF_NUMBERS)
def test_the_form_of_the_data_does_not_matter(model, method):
    target = torch.zeros(50, 1)
    expected = choose(model, POOL, method=method).tolist()
    forms = [
        (POOL,),
        (POOL, target),
        TensorDataset(POOL),
        TensorDataset(POOL, target),
        DataLoader(TensorDataset(POOL, target), batch_size=7),
    ]
    for form in forms:
        assert choose(model, form, method=method).tolist() == expected
    assert choose(model, POOL, (SEEN, target[:20]), method=method).tolist() == expected
    if method != "random":
        assert choose(model, iter([(POOL[:30],), (POOL[30:],)]), method=method).tolist() == expected


@pytest.mark.parametrize("method", OF_NUMBERS)
def test_features_with_a_head_are_inputs_with_a_network(model, method):
    model.eval()
    with torch.no_grad():
        pool, seen = model.backbone(POOL), model.backbone(SEEN)
    model.train()
    expected = choose(model, POOL, method=method).tolist()
    assert choose(model.head, pool, seen, method=method).tolist() == expected


def test_nothing_about_the_model_changes(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first = choose(model, POOL)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(choose(model, POOL), first)


@pytest.mark.parametrize("method", [name for name in OF_NUMBERS if name != "random"])
def test_a_pool_in_a_file_is_chosen_from_as_in_memory(model, method):
    expected = choose(model, POOL, method=method).tolist()
    options = {"inference_batch_size": 16, "max_memory_bytes": 1}
    assert choose(model, POOL, method=method, **options).tolist() == expected


def test_the_default_is_lcmd_of_numbers_and_the_margin_of_classes(model):
    assert choose(model, POOL).tolist() == choose(model, POOL, method="lcmd").tolist()
    torch.manual_seed(0)
    head = ll.DiscriminativeClassification(3, 4, num_data=20)
    found = choose(head, POOL).tolist()
    assert found == choose(head, POOL, method="margin").tolist()
    assert found != choose(head, POOL, method="lcmd").tolist()


def test_a_method_of_ones_own_is_asked(model):
    class Last(acquisition.Method):
        def choose(self, candidates, batch_size, generator, told):
            assert len(candidates) == 50
            return torch.arange(len(candidates))[-batch_size:]

    assert choose(model, POOL, method=Last()).tolist() == [45, 46, 47, 48, 49]


def test_the_first_choice_needs_no_labels(model):
    model.head.reset_parameters()
    for method in OF_NUMBERS:
        assert len(choose(model, POOL, None, method=method)) == 5


def test_random_needs_no_head():
    found = choose(nn.Linear(3, 1), POOL, method="random", seed=3)
    assert found.tolist() == choose(nn.Linear(3, 1), POOL, method="random", seed=3).tolist()
    assert found.tolist() != choose(nn.Linear(3, 1), POOL, method="random", seed=4).tolist()


@pytest.mark.parametrize("covariance", ["dense", "diagonal", "low_rank", "shared", "kronecker"])
@pytest.mark.parametrize("num_classes", [2, 4])
def test_classifiers_of_every_covariance_are_chosen_by(covariance, num_classes):
    torch.manual_seed(0)
    head = ll.DiscriminativeClassification(3, num_classes, num_data=20, covariance=covariance)
    for method in METHODS:
        assert len(set(choose(head, POOL, method=method).tolist())) == 5


ERRORS = [
    ({"batch_size": 0}, ValueError, "batch_size must be an integer of at least 1"),
    ({"batch_size": 51}, ValueError, "batch_size is 51, but the pool holds 50"),
    ({"pool": POOL[:0]}, ValueError, "the pool is empty: there is nothing left to label"),
    ({"pool": TensorDataset(POOL[:0])}, ValueError, "the pool is empty"),
    ({"labelled": SEEN[:0]}, ValueError, "pass None if nothing is labelled yet"),
    ({"method": "lcdm"}, ValueError, "did you mean 'lcmd'"),
    ({"pool": iter([(POOL[:3],)])}, ValueError, "batch_size is 5, but the pool holds 3"),
    ({"pool": iter([(POOL,)]), "method": "random"}, TypeError, "size of the pool is not known"),
    ({"method": "margin"}, ValueError, "needs the probabilities of at least two classes"),
    ({"pool": POOL.double()}, RuntimeError, "dtype"),
    ({"pool": POOL.unsqueeze(1)}, ValueError, "one row of features for each example"),
    ({"pool": {"x": POOL}}, TypeError, "data must be a tuple of tensors"),
    ({"model": nn.Linear(3, 1)}, TypeError, "give a trained network one by lastlayer.posttrain"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_bad_input_is_named(model, change, error, message):
    arguments = {"model": model, "pool": POOL, **change}
    with pytest.raises(error, match=message):
        choose(**arguments)


@pytest.mark.parametrize("method", [name for name in OF_NUMBERS if name != "random"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_values_that_are_not_finite_are_named_by_their_rows(model, method, value):
    pool = POOL.clone()
    pool[[3, 17]] = value
    with pytest.raises(ValueError, match=r"2 examples of pool .* \(rows 3, 17\)"):
        choose(model, pool, method=method)
    seen = SEEN.clone()
    seen[4] = value
    with pytest.raises(ValueError, match=r"1 examples of labelled .* \(rows 4\)"):
        choose(model, POOL, seen, method=method)


def test_models_without_a_joint_posterior_are_told_apart():
    generative = ll.GenerativeClassification(3, 2, num_data=20)
    with pytest.raises(TypeError, match="use a regression or discriminative head"):
        choose(generative, POOL)
    correlated = ll.Regression(3, 2, num_data=20, noise="dense", covariance="dense")
    with pytest.raises(TypeError, match="row_covariance='noise'"):
        choose(correlated, POOL)
    backbone = ll.make_variational(nn.Sequential(nn.Linear(3, 4)))
    network = ll.Network(backbone, ll.Regression(4, 1, num_data=20))
    with pytest.raises(TypeError, match="variational layers"):
        choose(network, POOL)
