"""Models of Hugging Face with Bayesian heads, tiny and random."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close
from torch.utils.data import IterableDataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2Model,
    Trainer,
    TrainingArguments,
)

import lastlayer as ll
from lastlayer.transformers import (
    HeadCallback,
    LastLayerForPairwiseReward,
    LastLayerForSequenceClassification,
    LastLayerForTokenClassification,
    posttrain,
)

WIDTH, WORDS, LENGTH = 8, 12, 5
SIZES: dict[str, Any] = {"vocab_size": WORDS, "pad_token_id": 0}


@pytest.fixture(autouse=True)
def _single_precision() -> None:
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)


def bert_config() -> BertConfig:
    return BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        **SIZES,
    )


def bert() -> BertModel:
    return BertModel(bert_config())


def gpt_config() -> GPT2Config:
    return GPT2Config(n_embd=WIDTH, n_layer=1, n_head=2, n_positions=16, **SIZES)


def gpt() -> GPT2Model:
    return GPT2Model(gpt_config())


def texts(count: int = 6) -> dict[str, Tensor]:
    tokens = torch.randint(1, WORDS, (count, LENGTH))
    mask = torch.ones_like(tokens)
    mask[0, 3:] = 0
    return {"input_ids": tokens * mask, "attention_mask": mask}


def rows(count: int = 12, tokens: bool = False) -> list[dict[str, Any]]:
    """Examples as of a tokenised data set: a label says whether the first word is a late one."""
    inputs = texts(count)
    labels = (inputs["input_ids"] > WORDS // 2).long()
    return [
        {
            "input_ids": inputs["input_ids"][at].tolist(),
            "attention_mask": inputs["attention_mask"][at].tolist(),
            "labels": [-100, *labels[at, 1:].tolist()] if tokens else int(labels[at, 0]),
        }
        for at in range(count)
    ]


# ------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("head", ["discriminative", "generative"])
def test_softmax_of_the_logits_are_the_probabilities_of_the_head(head: str) -> None:
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=3, head=head).eval()
    inputs, labels = texts(), torch.tensor([0, 1, 2, 0, 1, 2])
    output = model(**inputs, labels=labels)
    hidden = model.backbone(**inputs).last_hidden_state
    mask = inputs["attention_mask"].unsqueeze(-1)
    features = (hidden * mask).sum(1) / mask.sum(1)
    predictive = model.head(features)
    assert_close(output.logits.softmax(-1), predictive.log_probs().exp())
    assert_close(output.loss, model.head(features, labels))
    if head == "discriminative":
        assert_close(output.variance, predictive.logit_variance)
    assert_close(model.predict(**inputs).probs(), predictive.probs())
    model.head.num_data = 6
    assert model.train()(**inputs, labels=labels).logits is None, "training predicts nothing"


def test_a_causal_model_is_represented_by_its_last_token_on_either_side_of_padding() -> None:
    model = LastLayerForSequenceClassification.from_backbone(gpt(), num_labels=2).eval()
    assert model.config.pooling == "last"
    tokens = torch.tensor([[3, 4, 5]])
    alone = model.pooled(input_ids=tokens)[0]
    padded = torch.tensor([[3, 4, 5, 0, 0]])
    mask = (padded != 0).long()
    assert_close(model.pooled(input_ids=padded, attention_mask=mask)[0], alone)
    assert_close(model.pooled(input_ids=padded)[0], alone)  # by the token of padding
    left, left_mask = padded.roll(2, 1), mask.roll(2, 1)
    places = (left_mask.cumsum(-1) - 1).clamp(min=0)
    found = model.pooled(input_ids=left, attention_mask=left_mask, position_ids=places)[0]
    assert_close(found, alone)


def test_regression_returns_mean_and_variance() -> None:
    options = {"num_labels": 2, "head": "regression", "head_options": {"bias": True}}
    model = LastLayerForSequenceClassification.from_backbone(bert(), **options).eval()
    inputs = texts()
    output = model(**inputs, labels=torch.randn(6, 2))
    predictive = model.predict(**inputs)
    assert_close(output.logits, predictive.mean)
    assert_close(output.variance, predictive.variance)
    assert output.loss.isfinite()


def test_tokens_without_a_label_do_not_count() -> None:
    model = LastLayerForTokenClassification.from_backbone(bert(), num_labels=2).eval()
    inputs, labels = texts(), torch.randint(2, (6, LENGTH))
    labels[:, 2:] = -100
    output = model(**inputs, labels=labels)
    features = model.backbone(**inputs).last_hidden_state[:, :2]
    assert_close(output.loss, model.head(features, labels[:, :2]))
    assert output.logits.shape == (6, LENGTH, 2)
    nothing = model(**inputs, labels=torch.full_like(labels, -100)).loss
    elbo = model.head.elbo(features, labels[:, :2])
    assert_close(nothing, (elbo.kl - elbo.log_prior) / model.head.num_data)  # λ = 1


def test_training_without_the_number_of_examples_says_what_to_do() -> None:
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    labels = torch.zeros(6, dtype=torch.long)
    with pytest.raises(ValueError, match=r"HeadCallback\(\)\]\), or num_data="):
        model(**texts(), labels=labels)
    assert model.eval()(**texts(), labels=labels).loss.isfinite()


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize(
    ("kind", "auto_class"),
    [
        (LastLayerForSequenceClassification, AutoModelForSequenceClassification),
        (LastLayerForTokenClassification, AutoModelForTokenClassification),
    ],
)
def test_saved_models_are_read_again(
    kind: Any, auto_class: Any, auto: bool, tmp_path: Path
) -> None:
    prior = ll.Prior(variance=0.3, kl_weight=0.5)
    options = {"head_options": {"covariance": "low_rank", "prior": prior}, "num_data": 77}
    backbone = bert()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    model = kind.from_backbone(backbone, num_labels=3, **options).eval()
    assert_close(model.backbone.state_dict(), before)  # as it was given
    model.save_pretrained(tmp_path)
    again = (auto_class if auto else kind).from_pretrained(tmp_path).eval()
    assert type(again) is kind
    assert again.head.num_data == 77
    assert again.head.prior == prior
    assert_close(again.state_dict(), model.state_dict())
    inputs = texts()
    assert_close(again(**inputs).logits, model(**inputs).logits)


# ------------------------------------------------------------------------------------ rewards


def test_a_saved_reward_is_read_again(tmp_path: Path) -> None:
    model = LastLayerForPairwiseReward.from_backbone(bert(), num_data=9).eval()
    model.save_pretrained(tmp_path)
    again = LastLayerForPairwiseReward.from_pretrained(tmp_path).eval()
    inputs = texts()
    assert_close(again.reward(caution=1, **inputs), model.reward(caution=1, **inputs))
    assert again.head.num_data == 9


def test_rewards_and_comparisons_agree_with_sampled_weights() -> None:
    options: dict[str, Any] = {"head_options": {"noise": "none", "covariance": "dense"}}
    model = LastLayerForPairwiseReward.from_backbone(bert(), **options).eval().double()
    first, second = texts(4), texts(4)
    generator = torch.Generator().manual_seed(0)
    weights = model.head.mean + model.head.covariance.sample(20_000, generator)
    weights = (weights[:, 1] - weights[:, 0]).detach()  # (draws, N)
    with torch.no_grad():
        rewards = [weights @ model.pooled(**inputs)[0].T for inputs in (first, second)]
    wins = (rewards[0] - rewards[1]).sigmoid()
    found = model.compare(first, second)
    error = wins.std(0) / len(wins) ** 0.5
    assert ((found.log_prob.exp() - wins.mean(0)).abs() < 4 * error + 1e-3).all()
    swapped = model.compare(second, first)
    assert_close(
        found.log_prob.exp() + swapped.log_prob.exp(), torch.ones(4).double(), atol=1e-3, rtol=0
    )
    assert_close(found.mutual_information, swapped.mutual_information)
    output = model(**first)
    error = rewards[0].std(0) / len(wins) ** 0.5
    assert ((output.logits.squeeze(-1) - rewards[0].mean(0)).abs() < 4 * error).all()
    assert_close(output.variance.squeeze(-1), rewards[0].var(0), rtol=0.05, atol=0)
    cautious = output.logits.squeeze(-1) - 2 * output.variance.squeeze(-1).sqrt()
    assert_close(model.reward(caution=2, **first), cautious)


def test_pairs_train_the_reward() -> None:
    model = LastLayerForPairwiseReward.from_backbone(bert(), num_data=6)
    pair = {f"{name}_chosen": value for name, value in texts().items()}
    pair |= {f"{name}_rejected": value for name, value in texts().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = model.eval()(**pair).logits.mean()
    for _ in range(20):
        optimizer.zero_grad()
        model.train()(**pair).loss.backward()
        optimizer.step()
    assert model.eval()(**pair).logits.mean() > before
    with pytest.raises(ValueError, match="input_ids_rejected"):
        model(input_ids_chosen=pair["input_ids_chosen"])


# ----------------------------------------------------------------------------------- training


def train(
    model: Any, data: Any, folder: Path, callback: HeadCallback | None = None, **options: Any
) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        learning_rate=0.01,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    callbacks: list[Any] = [callback or HeadCallback()]
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=callbacks)
    trainer.train()
    return trainer


# Warnings of the Trainer's own libraries, about processors without accelerators.
@pytest.mark.filterwarnings("ignore:.*pin_memory")
@pytest.mark.parametrize("head", ["discriminative", "generative"])
def test_the_trainer_trains_evaluates_and_sets_the_number_of_examples(head, tmp_path) -> None:
    data: Any = rows()
    model: Any = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2, head=head)
    trainer = train(model, data, tmp_path)
    assert model.head.num_data == model.config.num_data == len(data)
    assert trainer.evaluate()["eval_loss"] > 0
    if head == "generative":
        counts = torch.bincount(torch.tensor([row["labels"] for row in data]), minlength=2)
        assert_close(model.head.concentration, model.head.prior_concentration + counts)
    predictions = trainer.predict(data).predictions
    logits = predictions[0] if isinstance(predictions, tuple) else predictions
    assert logits.shape == (len(data), 2)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_what_would_change_the_objective_is_said(tmp_path) -> None:
    data: Any = rows()
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    with pytest.raises(ValueError, match="label_smoothing_factor replaces the loss"):
        train(model, data, tmp_path, label_smoothing_factor=0.1)
    with pytest.warns(UserWarning, match="weight decay reaches the head"):
        train(model, data, tmp_path, weight_decay=0.1)


class Stream(IterableDataset[Any]):
    """A data set that has to be told how long it is."""

    def __init__(self) -> None:
        self.rows = rows()

    def __iter__(self) -> Any:
        return iter(self.rows)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_a_stream_trains_with_its_number_of_examples(tmp_path) -> None:
    stream: Any = Stream()
    options: Any = {"num_labels": 2, "head": "generative"}
    model: Any = LastLayerForSequenceClassification.from_backbone(bert(), **options)
    with pytest.raises(ValueError, match=r"HeadCallback\(num_data=…\)"):
        train(model, stream, tmp_path, max_steps=2)
    train(model, stream, tmp_path, HeadCallback(12), max_steps=2)
    assert model.head.num_data == 12
    counts = torch.bincount(torch.tensor([row["labels"] for row in stream]), minlength=2)
    assert_close(model.head.concentration, model.head.prior_concentration + counts)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_labels_that_are_no_class_are_named_before_training(tmp_path) -> None:
    data: Any = [row | {"labels": 1 + row["labels"]} for row in rows()]
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    with pytest.raises(ValueError, match="got values from 1 to 2"):
        train(model, data, tmp_path)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
def test_labels_of_tokens_are_counted(tmp_path) -> None:
    model = LastLayerForTokenClassification.from_backbone(bert(), num_labels=2)
    train(model, rows(tokens=True), tmp_path)
    assert model.head.num_data == 12 * (LENGTH - 1)


@pytest.mark.filterwarnings("ignore:.*pin_memory")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_low_rank_adapters_train_the_head_too(tmp_path) -> None:
    peft = pytest.importorskip("peft", reason="install lastlayer[test]")
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    config = peft.LoraConfig(target_modules=["query"], r=2, modules_to_save=["head"])
    adapted = peft.get_peft_model(model, config)
    data: Any = rows()
    train(adapted, data, tmp_path / "run", label_names=["labels"])
    adapted.eval()
    adapted.save_pretrained(tmp_path / "adapter")
    inputs = texts()
    expected = adapted(**inputs).logits
    torch.manual_seed(0)
    again = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    again.backbone.load_state_dict(fresh_backbone(adapted))
    loaded = peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval()
    assert_close(loaded(**inputs).logits, expected)


def fresh_backbone(adapted: Any) -> dict[str, Tensor]:
    """The weights of the backbone without the adapters."""
    state = adapted.get_base_model().backbone.state_dict()
    return {
        name.replace(".base_layer", ""): value
        for name, value in state.items()
        if "lora" not in name
    }


# -------------------------------------------------------------------------------- posttraining


def test_a_trained_classifier_is_posttrained_on_its_data_set_as_it_is() -> None:
    model = BertForSequenceClassification(bert_config()).eval()
    data = [row | {"text": "ignored"} for row in rows(40)]
    network = posttrain(model, data, progress=False)
    inputs = texts()
    with torch.no_grad():
        features = model.bert(**inputs).pooler_output
        assert_close(network.backbone(inputs), features)
        assert network(inputs).probs().shape == (6, 2)
    assert network.head.num_data == 40


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_a_classifier_with_adapters_is_posttrained_too() -> None:
    peft = pytest.importorskip("peft", reason="install lastlayer[test]")
    model = BertForSequenceClassification(bert_config()).eval()
    config = peft.LoraConfig(target_modules=["query"], r=2, modules_to_save=["classifier"])
    adapted = peft.get_peft_model(model, config).eval()
    network = posttrain(adapted, rows(40), progress=False)
    inputs = texts()
    with torch.no_grad():
        features = adapted.get_base_model().bert(**inputs).pooler_output
        assert_close(network.backbone(inputs), features)


def test_a_classifier_of_tokens_is_posttrained_on_those_with_a_label() -> None:
    model = BertForTokenClassification(bert_config()).eval()
    data = rows(40, tokens=True)
    options: Any = {"prior": ll.Prior(), "tolerance": 1e-9, "max_passes": 300, "progress": False}
    network = posttrain(model, data, **options)
    tokens, mask = (
        torch.tensor([r[name] for r in data]) for name in ("input_ids", "attention_mask")
    )
    labels = torch.tensor([row["labels"] for row in data])
    with torch.no_grad():
        features = model.bert(tokens, attention_mask=mask).last_hidden_state
    known = labels != -100
    layer = torch.nn.Sequential(model.classifier)
    data_of_layer = (features[known], labels[known])
    expected = ll.posttrain(layer, data_of_layer, **options)
    probs = network({"input_ids": tokens, "attention_mask": mask}).probs()
    assert_close(probs, expected(features).probs(), atol=1e-3, rtol=0)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
@pytest.mark.parametrize("adapters", [False, True])
def test_a_decoder_that_classifies_its_last_token_is_posttrained(adapters: bool) -> None:
    model: Any = GPT2ForSequenceClassification(gpt_config()).eval()
    if adapters:
        peft = pytest.importorskip("peft", reason="install lastlayer[test]")
        options = {"target_modules": ["c_attn"], "modules_to_save": ["score"], "r": 2}
        model = peft.get_peft_model(model, peft.LoraConfig(fan_in_fan_out=True, **options)).eval()
    data, inputs = rows(40), texts()
    expected = model(**inputs).logits.detach()
    network = posttrain(model, data, progress=False)
    with torch.no_grad():
        inner = model.get_base_model() if adapters else model
        hidden = inner.transformer(**inputs).last_hidden_state
        last = inputs["attention_mask"].sum(-1) - 1
        assert_close(network.backbone(inputs), hidden[torch.arange(6), last])
    assert_close(model(**inputs).logits, expected)  # as it was


def test_what_cannot_be_posttrained_is_said() -> None:
    with pytest.raises(ValueError, match=r"'labels' or 'label', got \['input_ids'\]"):
        posttrain(BertForSequenceClassification(bert_config()), [{"input_ids": [1, 2]}])
    model = LastLayerForSequenceClassification.from_backbone(bert(), num_labels=2)
    with pytest.raises(TypeError, match="has a Bayesian head already"):
        posttrain(model, rows())
