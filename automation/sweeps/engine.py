"""The search itself, by Optuna: what to try next, what to end early, what is best, which parameters matter.

Nothing here reads or writes the database: a `Search` is made from the rows of a sweep each time it is needed, and the
attributes that Optuna's samplers and pruners keep with the study and its trials are stored in those rows.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Mapping
from functools import cache, wraps
from importlib import import_module
from typing import NamedTuple

from automation.models import Sweep, Trial, TrialState

from . import space

log = logging.getLogger(__name__)
FEWEST = 4  # complete trials from which importance means something
GRID = "search_space"  # an attribute of each trial of a grid, not stored since it is the same for all


@cache
def _optuna():
    """Return the module, loaded only where it is needed: it takes 40 MB and a quarter of a second."""
    optuna = import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


class SearchFailed(Exception):
    """Optuna could not go on. It does not read the database or the network, so another try would fail, too."""


def _told(method):
    """Have whatever a method of Search raises raised as SearchFailed."""

    @wraps(method)
    def call(*given, **named):
        try:
            return method(*given, **named)
        except Exception as problem:
            log.exception("a search failed")
            raise SearchFailed(f"{type(problem).__name__}: {str(problem)[:500]}") from problem

    return call


class Suggestion(NamedTuple):
    """The values for a new trial, and what the sampler keeps with it."""

    params: dict
    attrs: dict


class Search:
    """Optuna's study of a sweep and its trials, as they are in the rows."""

    @_told
    def __init__(self, sweep: Sweep, trials: Iterable[Trial]):
        self.optuna = _optuna()
        self.sweep = sweep
        self.storage = self.optuna.storages.InMemoryStorage()
        self.distributions = {name: self._distribution(each) for name, each in sweep.space.items()}
        directions = sweep.directions
        self.study = self.optuna.create_study(
            study_name=f"sweep-{sweep.pk}", storage=self.storage, directions=directions,
            sampler=self._sampler(), pruner=self._pruner() if len(directions) == 1 else None,
        )  # fmt: skip
        self.id = self.storage.get_study_id_from_name(self.study.study_name)
        for key, value in sweep.attrs.items():
            self.storage.set_study_system_attr(self.id, key, value)
        self.numbers: dict[int, int] = {}  # of our trials, in the study
        for trial in sorted(trials, key=lambda each: each.number):
            self.numbers[trial.number] = len(self.numbers)
            self.study.add_trial(self._frozen(trial))

    @property
    def study_attrs(self) -> dict:
        return dict(self.storage.get_study_system_attrs(self.id))

    @_told
    def ask(self, given: Mapping | None = None) -> Suggestion:
        """Return values for a new trial, which is then one of those that run. `given` are not suggested but taken."""
        if given:
            self.study.enqueue_trial({name: self._inner(name, value) for name, value in given.items()})
        trial, values = self.study.ask(), {}
        for name, parameter in self.sweep.space.items():
            if space.exists(self.sweep.space, name, values):
                values[name] = self._suggest(trial, name, parameter)
        frozen = self.study.get_trials(deepcopy=False)[trial.number]
        attrs = {key: value for key, value in frozen.system_attrs.items() if key != GRID}
        return Suggestion(values, attrs)

    @_told
    def should_prune(self, trial: Trial, steps: list[list]) -> bool:
        """Report new steps of a running trial; return whether it should end, and update its attributes."""
        key = self.study.get_trials(deepcopy=False)[self.numbers[trial.number]]._trial_id
        prune = False
        for step, value in steps:
            self.storage.set_trial_intermediate_value(key, step, float(value))
            prune = self.study.pruner.prune(self.study, self.storage.get_trial(key))
            if prune:
                break
        trial.attrs = {name: each for name, each in self.storage.get_trial(key).system_attrs.items() if name != GRID}
        return prune

    @_told
    def best(self) -> list[int]:
        """Return the numbers of the best trial, or of those on the Pareto front; none while no trial is complete."""
        trial_numbers = {place: number for number, place in self.numbers.items()}
        try:
            if len(self.sweep.objectives) == 1:
                return [trial_numbers[self.study.best_trial.number]]
            return sorted(trial_numbers[trial.number] for trial in self.study.best_trials)
        except ValueError:
            return []

    @_told
    def importance(self) -> dict[str, dict[str, float]]:
        """Return for each metric how much each parameter matters, as shares of 1; {} while that cannot be said."""
        states = (self.optuna.trial.TrialState.COMPLETE,)
        if len(self.study.get_trials(deepcopy=False, states=states)) < FEWEST:
            return {}
        importances = {}
        for index, objective in enumerate(self.sweep.objectives):
            target = None if len(self.sweep.objectives) == 1 else (lambda trial, index=index: trial.values[index])
            try:
                shares = self.optuna.importance.get_param_importances(
                    self.study, evaluator=self.optuna.importance.PedAnovaImportanceEvaluator(), target=target
                )
            except (ValueError, RuntimeError) as problem:  # for example all values are equal
                log.info("importance of %s: %s", self.sweep, problem)
                continue
            importances[objective["metric"]] = {name: share for name, share in shares.items() if math.isfinite(share)}
        return importances

    # --- rows as Optuna has them ---
    def _frozen(self, trial: Trial):
        states = self.optuna.trial.TrialState
        state = {
            TrialState.COMPLETE: states.COMPLETE,
            TrialState.PRUNED: states.PRUNED,
            TrialState.FAILED: states.FAIL,
            TrialState.CANCELLED: states.FAIL,
        }.get(trial.state, states.RUNNING)
        attrs = dict(trial.attrs)
        if "grid_id" in attrs:
            attrs[GRID] = self.grid
        return self.optuna.trial.create_trial(
            state=state,
            values=trial.values if state == states.COMPLETE else None,
            params={name: self._inner(name, value) for name, value in trial.params.items()},
            distributions={name: self.distributions[name] for name in trial.params},
            system_attrs=attrs,
            intermediate_values={step: float(value) for step, value in trial.steps},
        )

    def _distribution(self, parameter: dict):
        kinds = self.optuna.distributions
        if parameter["type"] == "categorical":
            return kinds.CategoricalDistribution(range(len(parameter["choices"])))  # it takes 1 and true for one
        kind = kinds.IntDistribution if parameter["type"] == "int" else kinds.FloatDistribution
        return kind(parameter["low"], parameter["high"], log=parameter["log"], **self._step(parameter))

    @staticmethod
    def _step(parameter: dict) -> dict:
        return {"step": parameter["step"]} if parameter.get("step") and not parameter["log"] else {}

    def _suggest(self, trial, name: str, parameter: dict):
        """Return the value for a parameter of a new trial, as it is stored."""
        if parameter["type"] == "categorical":
            return parameter["choices"][trial.suggest_categorical(name, range(len(parameter["choices"])))]
        suggest = trial.suggest_int if parameter["type"] == "int" else trial.suggest_float
        suggested = suggest(name, parameter["low"], parameter["high"], log=parameter["log"], **self._step(parameter))
        return space.plain(parameter, suggested)

    def _inner(self, name: str, value):
        """Return a stored value as Optuna has it: a choice by its place, a number with the type of its parameter."""
        parameter = self.sweep.space[name]
        return space.place_of(parameter, value) if parameter["type"] == "categorical" else space.plain(parameter, value)

    # --- what searches ---
    @property
    def grid(self) -> dict[str, list]:
        """Return the values of each parameter, as Optuna has them."""
        points = sorted(space.grid_of(self.sweep.space).items())
        return {name: [self._inner(name, value) for value in values] for name, values in points}

    def _sampler(self):
        """Return the sampler. A given seed is offset by the number of trials: each look creates another one."""
        chosen, samplers = dict(self.sweep.sampler), self.optuna.samplers
        kind, seed = chosen["type"], chosen["seed"]
        moving = None if seed is None else (seed + self.sweep.asked) % 2**31
        match kind:
            case "random":
                return samplers.RandomSampler(seed=moving)
            case "grid":
                return samplers.GridSampler(self.grid, seed=seed or 0)  # the order of the points must stay
            case "cmaes":
                return samplers.CmaEsSampler(
                    seed=moving, n_startup_trials=chosen["startup_trials"], warn_independent_sampling=False
                )
            case "gp":
                return samplers.GPSampler(
                    seed=moving, n_startup_trials=chosen["startup_trials"], warn_independent_sampling=False
                )
            case "qmc":
                return samplers.QMCSampler(
                    seed=seed or 0, scramble=True, warn_asynchronous_seeding=False, warn_independent_sampling=False
                )
            case "nsga2":
                return samplers.NSGAIISampler(seed=moving, population_size=chosen["population"])
        return samplers.TPESampler(
            seed=moving, n_startup_trials=chosen["startup_trials"], multivariate=chosen["multivariate"]
        )

    def _pruner(self):
        chosen, pruners = dict(self.sweep.pruner), self.optuna.pruners
        match chosen["type"]:
            case "median":
                return pruners.MedianPruner(chosen["startup_trials"], chosen["warmup_steps"], chosen["interval_steps"])
            case "percentile":
                return pruners.PercentilePruner(
                    chosen["percentile"], chosen["startup_trials"], chosen["warmup_steps"], chosen["interval_steps"]
                )
            case "asha":
                return pruners.SuccessiveHalvingPruner(
                    chosen["min_steps"], chosen["reduction_factor"], chosen["grace_rungs"]
                )
            case "hyperband":
                return pruners.HyperbandPruner(
                    chosen["min_steps"], chosen["max_steps"] or "auto", chosen["reduction_factor"]
                )
            case "patience":
                return pruners.PatientPruner(None, chosen["patience"], chosen["min_delta"])
            case "threshold":
                return pruners.ThresholdPruner(lower=chosen["lower"], upper=chosen["upper"])
        return pruners.NopPruner()
