"""Agents on disk: no acknowledged observation is lost, and a crash changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lastlayer.bandits import Agent, Greedy, Policy, Retraining
from lastlayer.bandits.journal import Journal
from lastlayer.bandits.replay import Replay
from tests.bandits.test_agent import K, neural, observations

PLAN = Retraining(every=20, growth=0.2, steps=4, batch_size=8)


def made(folder: Path | None = None, **options: Any) -> Agent:
    return Agent(neural(), K, **{"retraining": PLAN, "seed": 5, "folder": folder, **options})


def play(agent: Agent, contexts: Tensor, rewards: Tensor, first: int, last: int) -> list[int]:
    """Batches of ten contexts, of which the reward is that of the arm in rewards (n, K)."""
    chosen: list[int] = []
    for batch in range(first, last):
        rows = slice(10 * batch, 10 * batch + 10)
        arms = agent.predict(contexts[rows])
        agent.partial_fit(contexts[rows], arms, rewards[rows].gather(1, arms[:, None]).squeeze(1))
        chosen += arms.tolist()
    return chosen


def problem(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    contexts = observations(generator, 120)[0]
    return contexts, torch.randn(120, K, generator=generator)


@pytest.mark.parametrize("stop", [1, 2, 5, 9])
def test_after_a_crash_an_agent_goes_on_as_if_nothing_had_happened(
    stop: int, tmp_path: Path, generator: torch.Generator
) -> None:
    data = problem(generator)
    whole = made()
    expected = play(whole, *data, 0, 12)
    chosen = play(made(tmp_path), *data, 0, stop)
    crashed = made(tmp_path)  # nothing was closed or saved before
    assert crashed.num_observations == 10 * stop
    crashed.predict(data[0])  # a decision whose reward nobody saw
    chosen += play(made(tmp_path), *data, stop, 12)
    assert chosen == expected
    assert_close(made(tmp_path).model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_a_record_that_was_cut_short_is_not_an_observation(
    tmp_path: Path, generator: torch.Generator
) -> None:
    data = problem(generator)
    play(made(tmp_path), *data, 0, 1)
    whole = (tmp_path / "journal").read_bytes()
    for damaged in (whole + whole[:-1], whole + whole[:3], whole[:-1] + b"x"):
        (tmp_path / "journal").write_bytes(damaged)
        left = 0 if damaged[: len(whole)] != whole else 10
        assert made(tmp_path).num_observations == left
    (tmp_path / "journal").write_bytes(whole + whole[:-1])
    play(made(tmp_path), *data, 1, 2)
    assert made(tmp_path).num_observations == 20


def test_a_crash_between_state_and_journal_counts_nothing_twice(
    tmp_path: Path, generator: torch.Generator
) -> None:
    data = problem(generator)
    agent = made(tmp_path)
    play(agent, *data, 0, 1)
    journal = (tmp_path / "journal").read_bytes()
    agent.train()  # saves the state and removes the journal
    assert not (tmp_path / "journal").exists()
    (tmp_path / "journal").write_bytes(journal)
    assert made(tmp_path).num_observations == 10


def test_a_saved_agent_is_loaded_with_its_options_and_arms(
    tmp_path: Path, generator: torch.Generator
) -> None:
    data = problem(generator)
    agent = made(policy=Greedy(0.3), reward_scale=2.0, forgetting=0.99, capacity=50)
    play(agent, *data, 0, 4)
    agent.remove_arm(2)
    agent.save(tmp_path)
    loaded = Agent.load(tmp_path, neural())
    assert loaded.arms == [0, 1, 3]
    assert loaded.policy == Greedy(0.3)
    assert (loaded.reward_scale, loaded.forgetting, loaded.retraining) == (2.0, 0.99, PLAN)
    assert_close(loaded.predict(data[0]), agent.predict(data[0]))
    for one in (agent, loaded):
        assert one.add_arm() == K
        one.partial_fit(data[0][:30], torch.full((30,), K), data[1][:30, 0])
    assert_close(loaded.model.state_dict(), agent.model.state_dict(), rtol=0, atol=0)
    files = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {".safetensors", ".json"}
    for path in tmp_path.rglob("*.json"):
        json.loads(path.read_text())


def test_a_folder_of_another_agent_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ValueError, match="has other arguments"):
        made(tmp_path, seed=6)
    with pytest.raises(FileNotFoundError, match="no agent"):
        Agent.load(tmp_path / "nowhere", neural())


class First(Policy):
    """Always the first arm."""

    def choose(self, mean: Tensor, stddev: Tensor, generator: torch.Generator) -> Tensor:
        return torch.zeros(mean.shape[:-1], dtype=torch.int64)

    def probabilities(self, mean: Tensor, stddev: Tensor) -> Tensor:
        return torch.eye(mean.shape[-1])[torch.zeros(mean.shape[:-1], dtype=torch.int64)]


def test_a_policy_of_ones_own_is_given_again(tmp_path: Path, generator: torch.Generator) -> None:
    agent = made(policy=First())
    agent.save(tmp_path)
    with pytest.raises(ValueError, match="policy of its own, First"):
        Agent.load(tmp_path, neural())
    contexts = problem(generator)[0]
    assert set(Agent.load(tmp_path, neural(), First()).predict(contexts).tolist()) == {0}


def test_a_journal_keeps_the_order_and_the_exact_values(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.read() == []
    records = [{"value": torch.full((2,), 0.1 * i), "n": torch.tensor(i)} for i in range(3)]
    for record in records:
        journal.append(record)
    assert_close(journal.read(), records, rtol=0, atol=0)


def test_a_replay_moves_and_drops_without_mixing_columns() -> None:
    replay, rows = Replay(300), torch.arange(1000)
    for part in rows.split(70):
        replay.extend(part[:, None].double(), part % 5, 2.0 * part, part)
        newest = rows[: int(part[-1]) + 1][-300:]
        assert_close(replay.numbers, newest)
        assert_close(replay.contexts, newest[:, None].double())
        assert_close(replay.arms, newest % 5)
    replay.keep(replay.arms == 3)
    assert (replay.arms == 3).all()
    assert_close(replay.rewards, 2.0 * replay.numbers)
    assert_close(replay.weights(0.5)[-2:], torch.tensor([0.5**5, 1.0]))
