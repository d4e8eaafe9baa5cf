"""Sentiment of film reviews by a real encoder of Hugging Face, with adapters and a Bayesian head.

all-MiniLM-L6-v2, whose weights come from a package registry, reads the first tokens of IMDB reviews
and is trained by the Trainer with LoRA adapters: once as a classifier with a softmax, which is then
post-trained on the same tokenised reviews, and once with a Bayesian head among the modules to save.
Rows have accuracy, NLL and calibration error (15 bins) on test reviews. The classifier reads the
first token, the Bayesian model by default the mean of all, and in a further row the first as well.
The record is written after each seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Whoever starts this file, `python benchmarks/encoder.py` or `python -m benchmarks.encoder`.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.report import Row, environment, print_table, write_json
from benchmarks.timing import progress
from experiments.datasets import imdb
from experiments.text.embed import minilm
from lastlayer.metrics import expected_calibration_error

Examples = list[dict[str, Any]]
RANK, LEARNING_RATE, BATCH_SIZE = 8, 1e-3, 16


def tokenised(tokenizer: Any, reviews: list[imdb.Review], max_tokens: int) -> Examples:
    read = tokenizer([review.text for review in reviews], truncation=True, max_length=max_tokens)
    return [
        {"input_ids": tokens, "attention_mask": mask, "labels": review.label}
        for tokens, mask, review in zip(
            read["input_ids"], read["attention_mask"], reviews, strict=True
        )
    ]


def drawn(reviews: list[imdb.Review], count: int, seed: int) -> list[imdb.Review]:
    order = torch.randperm(len(reviews), generator=torch.Generator().manual_seed(seed))
    return [reviews[at] for at in order[:count]]


def adapted(model: Any, head: str) -> Any:
    """The model with adapters in its attention, and its head trained as a whole."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=["query", "value"], modules_to_save=[head]
    )
    return get_peft_model(model, config)


def trained(
    model: Any, data: Examples, collator: Any, epochs: int, seed: int, *callbacks: Any
) -> None:
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=LEARNING_RATE,
            seed=seed,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            label_names=["labels"],
        )
        options = {"train_dataset": data, "data_collator": collator, "callbacks": list(callbacks)}
        Trainer(model, arguments, **options).train()
    model.eval()


@torch.no_grad()
def evaluated(
    predict: Callable[[dict[str, Tensor]], Tensor], data: Examples, collator: Any
) -> tuple[Row, Tensor]:
    """Scores of log-probabilities, and these."""
    parts = []
    for first in range(0, len(data), 4 * BATCH_SIZE):
        batch = dict(collator(data[first : first + 4 * BATCH_SIZE]))
        batch.pop("labels")
        parts.append(predict(batch).float())
    log_probs, labels = torch.cat(parts), torch.tensor([row["labels"] for row in data])
    scores = {
        "accuracy": float((log_probs.argmax(-1) == labels).float().mean()),
        "nll": float(F.nll_loss(log_probs, labels)),
        "ece": float(expected_calibration_error(log_probs.exp(), labels)),
    }
    return scores, log_probs


def log_probs_of(model: Any) -> Callable[[dict[str, Tensor]], Tensor]:
    """How a model with a Bayesian head predicts: its logits are log-probabilities."""
    return lambda inputs: model(**inputs).logits


def measure(folder: str, train: Examples, test: Examples, epochs: int, seed: int) -> list[Row]:
    from peft import PeftModel
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
    )

    from lastlayer import transformers as llt

    collator = DataCollatorWithPadding(AutoTokenizer.from_pretrained(folder))
    rows: list[Row] = []

    def record(name: str, start: float, predict: Callable[[dict[str, Tensor]], Tensor]) -> Tensor:
        seconds = time.process_time() - start
        scores, log_probs = evaluated(predict, test, collator)
        rows.append({"model": name, "seed": seed, **scores, "seconds": seconds})
        return log_probs

    progress(f"seed {seed}: a classifier with adapters")
    torch.manual_seed(seed)
    start = time.process_time()
    classifier = adapted(
        AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2), "classifier"
    )
    trained(classifier, train, collator, epochs, seed)
    record("classifier, softmax", start, lambda x: classifier(**x).logits.log_softmax(-1))

    progress(f"seed {seed}: the classifier post-trained")
    start = time.process_time()
    network = llt.posttrain(classifier, train, data_collator=collator, progress=False)
    record("classifier, `posttrain`", start, lambda x: network(x).log_probs())

    kind = llt.LastLayerForSequenceClassification
    for pooling in ("first", "mean"):
        progress(f"seed {seed}: a Bayesian head with adapters, pooling={pooling!r}")

        def made(pooling: str = pooling) -> Any:
            return kind.from_backbone(folder, num_labels=2, pooling=pooling)

        torch.manual_seed(seed)
        start = time.process_time()
        bayesian = adapted(made(), "head")
        trained(bayesian, train, collator, epochs, seed, llt.HeadCallback())
        name = f"`LastLayerForSequenceClassification`, {pooling}"
        log_probs = record(name, start, log_probs_of(bayesian))
        with tempfile.TemporaryDirectory() as saved:
            bayesian.save_pretrained(saved)
            again = PeftModel.from_pretrained(made(), saved).eval()
        few = slice(0, 4 * BATCH_SIZE)
        restored = evaluated(log_probs_of(again), test[few], collator)[1]
        rows[-1]["difference after loading"] = float((restored - log_probs[few]).abs().max())
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="""examples:
  LASTLAYER_DATA=data python benchmarks/encoder.py --json results/encoder.json
  LASTLAYER_DATA=data python benchmarks/encoder.py --train 16 --test 16    does it run?""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--train", type=int, default=400, help="training reviews (default: 400)")
    parser.add_argument("--test", type=int, default=500, help="test reviews (default: 500)")
    parser.add_argument("--epochs", type=int, default=6, help="of training (default: 6)")
    parser.add_argument("--max-tokens", type=int, default=64, help="of a review (default: 64)")
    parser.add_argument("--seeds", type=int, default=1, help="of data and weights (default: 1)")
    parser.add_argument("--encoder", help="folder of another encoder (default: of the package)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything here")
    options = parser.parse_args(arguments)
    if "LASTLAYER_DATA" not in os.environ:
        raise SystemExit("set LASTLAYER_DATA to the folder that holds imdb/imdb_reviews.jsonl.xz")
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    folder = options.encoder or str(minilm())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    reviews = imdb.reviews()
    test = drawn([review for review in reviews if not review.is_train], options.test, 0)
    rows: list[Row] = []
    for seed in range(options.seeds):
        train = drawn([review for review in reviews if review.is_train], options.train, seed)
        known, new = (tokenised(tokenizer, part, options.max_tokens) for part in (train, test))
        rows += measure(folder, known, new, options.epochs, seed)
        if options.json:
            config = {name: value for name, value in vars(options).items() if name != "encoder"}
            config["seeds"] = seed + 1
            write_json(options.json, config, environment(), {"encoder": rows})
    print_table("Sentiment by an encoder with adapters", rows)


if __name__ == "__main__":
    main()
