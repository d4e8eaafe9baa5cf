"""An agent for contextual bandits around a network with a Bayesian last layer."""

from __future__ import annotations

import copy
import hashlib
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._checks import check_count, check_forgetting
from ..heads import Regression
from ..network import Network
from . import policies
from .arms import check_model, check_observations, check_units, with_outputs
from .exact import fit_posterior, set_to_prior
from .policies import Policy, make_policy
from .replay import Replay
from .retraining import Retraining, train_network
from .store import Store

ROWS = 16384  # contexts through the backbone at a time
DEAD = (
    "a training left features that are the same for all contexts, and was undone; units that "
    "cannot die, such as torch.nn.LeakyReLU, or a lower Retraining(learning_rate=…) avoid this"
)
COUNTS = ("num_observations", "num_trainings", "_num_labels", "_num_calls", "_num_new")


class Agent:
    """Chooses arms for contexts, and learns from the rewards of the arms that were pulled.

    The network predicts the reward of every arm. Between two trainings of the network its
    features are fixed, and every observation updates the exact posterior of the last layer.

    With a `folder`, every observation has reached the disk when `partial_fit` returns, and the
    same constructor call, after a crash for instance, goes on exactly where it ended.

    Args:
        model: a network whose regression head has an output for each arm, and
            `covariance="dense"`. The agent trains it.
        num_arms: K. Arms are the integers from 0 to K − 1, until some are added or removed.
        policy: "thompson", "ucb", "greedy" or "epsilon", or one of `lastlayer.bandits`.
        retraining: when and how the network is trained; None never trains it, which leaves a
            Bayesian linear regression on the features of the backbone.
        reward_scale: rewards are divided by it before the head sees them, so that its prior is in
            units of it. None is their standard deviation, known at each training.
        reward_location: is subtracted from rewards before. None is their mean, known at each
            training.
        forgetting: factor on what an observation says, for every observation after it.
        capacity: maximum number of observations that are remembered for training.
        seed: of all random choices.
        folder: for the agent's state; a new one, or that of an agent with the same arguments.

    Attributes:
        arms: the arms that can be chosen, in the order of the outputs of the head.
        num_observations: how many observations were ever made.
        num_trainings: how often the network was trained.
    """

    def __init__(
        self,
        model: Network,
        num_arms: int,
        *,
        policy: str | Policy = "thompson",
        retraining: Retraining | None = Retraining(),  # noqa: B008 - it is frozen
        reward_scale: float | None = None,
        reward_location: float | None = None,
        forgetting: float = 1.0,
        capacity: int = 100_000,
        seed: int = 0,
        folder: str | Path | None = None,
    ) -> None:
        check_count("capacity", capacity)
        check_count("seed", seed, 0)
        check_forgetting(forgetting)
        check_units(reward_location, reward_scale)
        self._exact = retraining is None or retraining.exact
        check_model(model, num_arms, exact=self._exact)
        self.model, self.policy, self.retraining = model.eval(), make_policy(policy), retraining
        self.reward_scale, self.reward_location = reward_scale, reward_location
        self.forgetting, self.seed = forgetting, seed
        self.arms, self._num_labels = list(range(num_arms)), num_arms
        self.num_observations = self.num_trainings = self._num_calls = self._num_new = 0
        self._location = 0.0 if reward_location is None else reward_location
        self._scale = 1.0 if reward_scale is None else reward_scale
        self._replay = Replay(capacity)
        self._store: Store | None = None
        if self._exact and self._head.fresh:
            set_to_prior(self._head)
        if folder is not None:
            self._open(Store(folder))

    @property
    def observations(self) -> tuple[Tensor, Tensor, Tensor]:
        """The contexts, arms and rewards that are remembered, oldest first."""
        if not len(self._replay):
            raise ValueError("there are no observations yet; call partial_fit first")
        return self._replay.contexts, self._replay.arms, self._replay.rewards

    def _seed_of(self, purpose: str, number: int) -> int:
        """A seed for each decision and training, so that nothing random is to be saved."""
        text = f"{self.seed} {purpose} {number}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little")

    @property
    def _head(self) -> Regression:
        head = self.model.head
        assert isinstance(head, Regression)
        return head

    # ---------------------------------------------------------------------------- deciding

    def predict(self, contexts: Any) -> Tensor:
        """An arm for each context, (batch,), by the agent's policy.

        Args:
            contexts: (batch, …), for the backbone.
        """
        generator = torch.Generator().manual_seed(self._seed_of("decision", self._num_calls))
        self._num_calls += 1
        return torch.tensor(self.arms)[self.policy.choose(*self._moments(contexts), generator)]

    def predict_expectations(self, contexts: Any) -> Tensor:
        """The expected reward of every arm, (batch, K), in the order of `arms`."""
        return self._location + self._scale * self._moments(contexts)[0]

    def action_probabilities(self, contexts: Any) -> Tensor:
        """The probability with which `predict` chooses each arm, (batch, K).

        For logging and off-policy evaluation; those of Thompson sampling are an integral, not
        frequencies of draws.
        """
        return self.policy.probabilities(*self._moments(contexts))

    @torch.no_grad()
    def _moments(self, contexts: Any) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of expected rewards, in the head's units, (batch, K)."""
        predictive = self._head(self._features(self._contexts(contexts)))
        return predictive.mean.cpu(), predictive.epistemic_variance.sqrt().cpu()

    def _contexts(self, contexts: Any) -> Tensor:
        contexts = torch.as_tensor(contexts).cpu()
        if contexts.ndim < 2:
            raise ValueError(
                f"contexts must be (batch, …), got shape {tuple(contexts.shape)}; pass "
                "contexts[None] for a single one"
            )
        return contexts.to(self._head.mean.dtype) if contexts.is_floating_point() else contexts

    @torch.no_grad()
    def _features(self, contexts: Tensor) -> Tensor:
        """Features of contexts, (batch, num_features)."""
        device = self._head.mean.device
        return torch.cat([self.model.backbone(part.to(device)) for part in contexts.split(ROWS)])

    # ---------------------------------------------------------------------------- learning

    def partial_fit(self, contexts: Any, arms: Any, rewards: Any) -> None:
        """Learn from rewards, and train the network if it is time.

        Args:
            contexts: (batch, …), for the backbone.
            arms: that were pulled, (batch,).
            rewards: of these arms, (batch,).
        """
        contexts, arms = self._contexts(contexts), torch.as_tensor(arms).cpu()
        rewards = torch.as_tensor(rewards, dtype=torch.float64).cpu()
        check_observations(contexts, arms, rewards, self.arms)
        if not len(arms):
            return
        features = self._features(contexts)
        if not bool(features.isfinite().all()):
            raise ValueError("contexts or their features hold NaN or infinite values; clean them")
        if self._store is not None:
            record = {"contexts": contexts, "arms": arms.long(), "rewards": rewards}
            record["calls"] = torch.tensor(self._num_calls)
            self._store.append(self.num_observations, record)
        self._learn(contexts, features, arms.long(), rewards)

    def _learn(self, contexts: Tensor, features: Tensor, arms: Tensor, rewards: Tensor) -> None:
        numbers = torch.arange(len(arms)) + self.num_observations
        self._replay.extend(contexts, arms, rewards, numbers)
        self.num_observations += len(arms)
        self._num_new += len(arms)
        if self.retraining and self.retraining.due(self._num_new, len(self._replay)):
            self.train()
        elif self._exact and self._head.learns_prior and not self.num_trainings:
            self._fit_exact()  # there is no learned variance yet with which to update
        elif self._exact:
            ages = torch.arange(len(arms) - 1, -1, -1)
            target, weight = self._targets(arms, rewards, self.forgetting ** ages.double())
            forgetting = self.forgetting ** len(arms)
            self._head.update(features, target, weight, forgetting=forgetting)

    def train(self) -> None:
        """Train the network on the observations that are remembered, whether it is time or not."""
        replay = self._replay
        if not len(replay):
            raise ValueError("there are no observations to train on; call partial_fit first")
        if self.reward_location is None:
            self._location = float(replay.rewards.mean())
        if self.reward_scale is None:
            self._scale = float(replay.rewards.std(correction=0)) or 1.0
        shares = replay.weights(self.forgetting)
        self._head.num_data = float(shares.sum())
        data = (replay.contexts, self._standardized(replay.rewards), self._outputs(replay.arms))
        plan = self.retraining or Retraining()
        seed = self._seed_of("training", self.num_trainings)
        former = self._refitted() if plan.undo and self._exact and self.num_trainings else None
        before, varied = copy.deepcopy(self.model.state_dict()), self._features_vary()
        train_network(self.model, data, shares, plan, seed)
        if varied and not self._features_vary():
            self.model.load_state_dict(before)
            warnings.warn(DEAD, stacklevel=2)
        self.num_trainings += 1
        self._num_new = 0
        if self._exact:
            self._fit_exact()
        if former is not None and self._noise() > former[0]:
            self.model.load_state_dict(former[1])
        self._checkpoint()

    def _refitted(self) -> tuple[float, dict[str, Tensor]]:
        """Noise and state with the features of now, given all that is remembered."""
        self._fit_exact()
        return self._noise(), copy.deepcopy(self.model.state_dict())

    def _features_vary(self) -> bool:
        """Whether features tell contexts apart: those of dead units are the same for all."""
        features = self._features(self._replay.contexts[-ROWS:])
        spread = (features.amax(0) - features.amin(0)).max()
        return bool(spread > 1e-6 * features.abs().max())

    @torch.no_grad()
    def _noise(self) -> float:
        """Mean noise variance of the arms."""
        return float(self._head.noise.variance().mean())

    def _fit_exact(self) -> None:
        """Set the last layer to its exact posterior given all that is remembered."""
        replay, plan = self._replay, self.retraining or Retraining()
        weight = replay.weights(self.forgetting)
        targets = self._targets(replay.arms, replay.rewards, weight)
        data = (self._features(replay.contexts), *targets)
        fit_posterior(self._head, data, plan, estimate_noise=self.num_trainings > 0)

    def _standardized(self, rewards: Tensor) -> Tensor:
        return ((rewards - self._location) / self._scale).to(self._head.mean.dtype)

    def _outputs(self, arms: Tensor) -> Tensor:
        """Indices of the head's outputs; the arms are in ascending order."""
        return torch.searchsorted(torch.tensor(self.arms), arms)

    def _targets(self, arms: Tensor, rewards: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Targets and weights of all outputs, (n, K) each, zero but for the arms pulled."""
        like, pulled = self._head.mean, F.one_hot(self._outputs(arms), len(self.arms))
        target = self._standardized(rewards).unsqueeze(-1) * pulled
        return target.to(like), (weight.unsqueeze(-1) * pulled).to(like)

    # -------------------------------------------------------------------------------- arms

    def add_arm(self) -> int:
        """Add an arm, of which nothing is known but the prior, and return it."""
        arm = self._num_labels
        self._replace_head([*self.arms, arm])
        self._num_labels += 1
        self._checkpoint()
        return arm

    def remove_arm(self, arm: int) -> None:
        """Remove an arm and forget what was observed of it; its number is not used again."""
        if arm not in self.arms:
            raise ValueError(f"there is no arm {arm!r}; the arms are {self.arms}")
        if len(self.arms) == 1:
            raise ValueError("the last arm cannot be removed; add another first")
        self._replace_head([other for other in self.arms if other != arm])
        if len(self._replay):
            self._replay.keep(self._replay.arms != arm)
        self._checkpoint()

    def _replace_head(self, arms: list[int]) -> None:
        kept = [output for output, arm in enumerate(self.arms) if arm in arms]
        self.model.head = with_outputs(self._head, kept, len(arms) - len(kept))
        self.arms = arms

    # ------------------------------------------------------------------- saving and loading

    def save(self, folder: str | Path) -> None:
        """Write the agent to a folder, atomically, as safetensors and JSON."""
        Store(folder).save(self._state())

    @classmethod
    def load(cls, folder: str | Path, model: Network, policy: Policy | None = None) -> Agent:
        """An agent as it was saved, with what it observed since; later calls do not change it.

        Args:
            folder: of `save`, or the `folder` of an agent.
            model: a network as the agent was made with, whatever its weights.
            policy: if it is one of your own.
        """
        store = Store(folder)
        state = store.load()
        if state is None:
            raise FileNotFoundError(f"there is no agent in {folder}")
        options = dict(state["options"])
        (name, values), plan = options.pop("policy"), options.pop("retraining")
        if policy is None and name not in policies.__dict__:
            raise ValueError(f"the agent has a policy of its own, {name}; pass it as policy")
        agent = cls(
            model,
            model.head.num_outputs,
            policy=policy or policies.__dict__[name](*values),
            retraining=None if plan is None else Retraining(**plan),
            **options,
        )
        agent._restore(state, store)
        return agent

    def _open(self, store: Store) -> None:
        """Go on from the state in a folder, or begin one."""
        state = store.load()
        if state is None:
            store.save(self._state())
        elif state["options"] != self._options():
            raise ValueError(
                f"the agent in {store.folder} has other arguments, {state['options']}, than "
                f"{self._options()}; pass the same, or choose another folder"
            )
        else:
            self._restore(state, store)
        self._store = store

    def _checkpoint(self) -> None:
        if self._store is not None:
            self._store.save(self._state())

    def _options(self) -> dict[str, Any]:
        return {
            "policy": [type(self.policy).__name__, list(self.policy.values)],
            "retraining": None if self.retraining is None else asdict(self.retraining),
            "reward_scale": self.reward_scale,
            "reward_location": self.reward_location,
            "forgetting": self.forgetting,
            "capacity": self._replay.capacity,
            "seed": self.seed,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "options": self._options(),
            "arms": self.arms,
            "counts": [getattr(self, name) for name in COUNTS],
            "units": [self._location, self._scale, self._head.num_data],
            "model": self.model.state_dict(),
            "replay": self._replay.state(),
        }

    def _restore(self, state: dict[str, Any], store: Store) -> None:
        """Become an agent with this state, and learn what its folder says was observed since."""
        surplus = len(state["arms"]) - len(self.arms)
        kept = list(range(min(len(state["arms"]), len(self.arms))))
        self.model.head = with_outputs(self._head, kept, max(surplus, 0))
        self.model.load_state_dict(state["model"])
        self.arms = state["arms"]
        for name, value in zip(COUNTS, state["counts"], strict=True):
            setattr(self, name, value)
        self._location, self._scale, self._head.num_data = state["units"]
        self._replay.load(state["replay"])
        for record in store.since(self.num_observations):
            contexts = record["contexts"]
            self._learn(contexts, self._features(contexts), record["arms"], record["rewards"])
            self._num_calls = int(record["calls"])
