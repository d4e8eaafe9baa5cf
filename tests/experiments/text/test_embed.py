"""Features of texts by language models that are made here, tiny and random."""

import json
import sys

import numpy as np
import pytest
import torch

from benchmarks import encoder
from experiments.datasets import imdb
from experiments.text import embed
from tests.helpers.reviews import write_reviews

reason = "needs transformers, of the extra `test`: run make, or pip install -e '.[test]'"
transformers = pytest.importorskip("transformers", reason=reason)
tokenizers = pytest.importorskip("tokenizers", reason=reason)

WORDS = ["[PAD]", "[UNK]", "a", "film", "good", "bad", "very", "long"]
TEXTS = ["good film", "a very very bad film", "a", "very good", "bad " * 7 + "long film", "film"]
SIZES = {"vocab_size": len(WORDS)}


@pytest.fixture(autouse=True)
def _reviews(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTLAYER_DATA", str(tmp_path / "data"))
    torch.set_default_dtype(torch.float32)
    write_reviews(tmp_path / "data", TEXTS)


def save(model, folder):
    """A model and a tokenizer by words, as Hugging Face has them in folders."""
    words = {word: at for at, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    model.save_pretrained(folder)
    return model.eval()


@pytest.fixture
def causal(tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=2, n_positions=32, **SIZES)
    return save(transformers.GPT2LMHeadModel(config), tmp_path / "Tiny_Causal")


@pytest.fixture
def sentence(tmp_path, monkeypatch):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        **SIZES,
    )
    package = tmp_path / embed.PACKAGE
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, embed.PACKAGE, raising=False)
    return save(transformers.BertModel(config), package / "model")


def tokens(text):
    return torch.tensor([[WORDS.index(word) for word in text.split()]])


def written(features):
    with np.load(imdb.path(features)) as file:
        return {name: file[name] for name in file.files}


@torch.no_grad()
def test_a_causal_model_gives_its_last_layer_at_the_last_token(causal, tmp_path):
    embed.write(str(tmp_path / "Tiny_Causal"), max_tokens=32, progress=False)
    found = written("tiny-causal")
    for text, features in zip(TEXTS, found["embeddings"], strict=True):
        alone = causal.transformer(tokens(text)).last_hidden_state[0, -1]
        np.testing.assert_allclose(features, alone.numpy(), rtol=2e-3, atol=2e-3)  # half precision
    assert found["labels"].tolist() == [0, 1] * 3
    assert found["is_train"].tolist() == [True] * 3 + [False] * 3


@torch.no_grad()
def test_of_a_long_text_a_causal_model_reads_the_end(causal, tmp_path):
    features = embed.Encoder(str(tmp_path / "Tiny_Causal"), max_tokens=4)([TEXTS[4]])[0]
    end = causal.transformer(tokens("bad bad long film")).last_hidden_state[0, -1]
    np.testing.assert_allclose(features, end.numpy(), rtol=2e-3, atol=2e-3)


@torch.no_grad()
def test_the_sentence_encoder_gives_the_mean_over_tokens_at_unit_length(sentence):
    embed.write("minilm", max_tokens=5, progress=False)
    for text, features in zip(TEXTS, written("minilm")["embeddings"], strict=True):
        mean = sentence(tokens(text)[:, :5]).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(features, mean / mean.norm(), rtol=2e-3, atol=2e-3)


def test_an_interrupted_run_goes_on_where_it_was(causal, tmp_path, monkeypatch):
    monkeypatch.setattr(embed, "PART", 2)
    name, encode = str(tmp_path / "Tiny_Causal"), embed.Encoder.__call__
    seen: list[list[str]] = []
    rest: list[list[str]] = []

    def interrupted(self, texts):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(texts)
        return encode(self, texts)

    monkeypatch.setattr(embed.Encoder, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embed.write(name, max_tokens=32, progress=False)
    assert not imdb.path("tiny-causal").exists()
    with pytest.raises(ValueError, match="max_tokens"):
        embed.write(name, max_tokens=16, progress=False)
    monkeypatch.setattr(embed.Encoder, "__call__", encode)
    whole = embed.Encoder(name, 32)(TEXTS)

    def noted(self, texts):
        rest.append(texts)
        return encode(self, texts)

    monkeypatch.setattr(embed.Encoder, "__call__", noted)
    path = embed.write(name, max_tokens=32, progress=False)
    assert (seen, rest) == ([TEXTS[:2], TEXTS[2:4]], [TEXTS[4:]])
    np.testing.assert_allclose(written("tiny-causal")["embeddings"], whole, rtol=2e-3, atol=2e-3)
    assert [file.name for file in path.parent.iterdir() if file != path] == [imdb.JSON]
    with pytest.raises(ValueError, match="exists"):
        embed.write(name, max_tokens=32, progress=False)


def test_without_its_package_the_sentence_encoder_names_the_extra(monkeypatch):
    monkeypatch.setattr(embed, "PACKAGE", "no_such_package")
    with pytest.raises(ImportError, match=r"\.\[text\]"):
        embed.write("minilm", max_tokens=32, progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*pin_memory")
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")
def test_the_benchmark_of_an_encoder_restores_the_predictions_it_saved(sentence, tmp_path):
    write_reviews(tmp_path / "data", 8 * TEXTS)
    record = tmp_path / "encoder.json"
    encoder.main(["--train", "24", "--test", "12", "--epochs", "1", "--json", str(record)])
    rows = json.loads(record.read_text())["sections"]["encoder"]
    classifier, posttrained, *bayesian = rows
    assert all(row["difference after loading"] < 1e-5 for row in bayesian)
    assert posttrained["nll"] != classifier["nll"]
    assert all(0 < row["nll"] < 2 for row in rows)
