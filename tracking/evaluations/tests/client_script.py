"""What an unmodified MLflow 3 client does with evaluation datasets and scorers. Run by test_evaluation_clients.py."""

from __future__ import annotations

import math
import os

os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"

import mlflow
import pandas
from mlflow.entities.trace_metrics import AggregationType, MetricAggregation, MetricViewType
from mlflow.exceptions import MlflowException
from mlflow.genai import datasets
from mlflow.genai.judges import make_judge
from mlflow.genai.scorers import Guidelines, delete_scorer, get_scorer, list_scorers, scorer
from mlflow.tracking._tracking_service.utils import _get_store

QUESTIONS = ("capital of China? 北京", "capital of France?", "capital of Peru?")


def made(experiment: str):
    """Return a dataset of three records, made from dictionaries, from a table and from a trace."""
    dataset = datasets.create_dataset(name="capitals", experiment_id=[experiment], tags={"stage": "draft"})
    given = [{"inputs": {"question": QUESTIONS[0]}, "expectations": {"expected_response": "BEIJING"}}]
    dataset.merge_records(given)
    dataset.merge_records(pandas.DataFrame([{"inputs": {"question": QUESTIONS[1]}, "tags": {"n": math.nan}}]))

    @mlflow.trace
    def answer(question: str) -> str:
        return question.upper()

    answer(QUESTIONS[2])
    key = mlflow.get_last_active_trace_id()
    mlflow.log_expectation(trace_id=key, name="expected_response", value=QUESTIONS[2].upper())
    dataset.merge_records(mlflow.search_traces(locations=[experiment]))
    table = dataset.to_df()
    assert [row["question"] for row in table["inputs"]] == list(QUESTIONS)
    assert list(table["source_type"]) == ["HUMAN", "CODE", "TRACE"], table
    assert table["source_id"][2] == key
    assert table["expectations"][2] == {"expected_response": QUESTIONS[2].upper()}, table
    return dataset


def keep_datasets(experiment: str) -> None:
    dataset = made(experiment)
    again = datasets.get_dataset(name="capitals")
    assert again.dataset_id == dataset.dataset_id
    assert again.profile == '{"num_records": 3}'
    assert '"question": "string"' in again.schema
    assert again.digest != dataset.digest
    assert again.experiment_ids == [experiment]
    more = [{"inputs": {"question": QUESTIONS[1]}, "expectations": {"expected_response": "PARIS", "n": math.inf}}]
    again.merge_records(more)
    assert len(again.to_df()) == 3
    assert again.to_df()["expectations"][1] == {"expected_response": "PARIS", "n": math.inf}
    datasets.set_dataset_tags(dataset.dataset_id, {"stage": "ready", "n": 1})
    datasets.delete_dataset_tag(dataset.dataset_id, "n")
    other = mlflow.create_experiment("other")
    datasets.add_dataset_to_experiments(dataset.dataset_id, [other])
    assert [one.name for one in datasets.search_datasets(experiment_ids=[other])] == ["capitals"]
    datasets.remove_dataset_from_experiments(dataset.dataset_id, [other])
    assert not datasets.search_datasets(experiment_ids=[other])
    assert [one.tags["stage"] for one in datasets.search_datasets(filter_string="tags.stage = 'ready'")] == ["ready"]
    many = datasets.create_dataset(name="many", experiment_id=[experiment])
    many.merge_records([{"inputs": {"n": number}, "expectations": {"n": number}} for number in range(2500)])
    assert len(many.to_df()) == 2500
    many.delete_records(list(many.to_df()["dataset_record_id"][:2499]))
    assert [row["n"] for row in many.to_df()["inputs"]] == [2499]
    datasets.delete_dataset(dataset_id=many.dataset_id)
    assert code_of(datasets.get_dataset, dataset_id=many.dataset_id) == "RESOURCE_DOES_NOT_EXIST"


def code_of(action, **given) -> str:
    """Return the code of the refusal of a call; "" for one that succeeds."""
    try:
        action(**given)
    except MlflowException as problem:
        return problem.error_code
    return ""


@scorer
def exact(outputs, expectations):
    return mlflow.entities.Feedback(value=outputs == expectations["expected_response"], rationale="compared 比较")


@scorer
def length(outputs):
    return len(outputs)


def keep_scorers(experiment: str) -> None:
    judge = make_judge(name="polite", instructions="Is {{ outputs }} polite?", model="openai:/gpt-4o-mini")
    judge.register(experiment_id=experiment)
    judge.register(experiment_id=experiment)
    Guidelines(name="english", guidelines="Answer in English", model="openai:/gpt-4o-mini").register(
        experiment_id=experiment
    )
    assert sorted(one.name for one in list_scorers(experiment_id=experiment)) == ["english", "polite"]
    assert get_scorer(name="polite", experiment_id=experiment, version=1).instructions.startswith("Is {{")
    delete_scorer(name="polite", experiment_id=experiment, version=2)
    delete_scorer(name="english", experiment_id=experiment, version="all")
    assert [one.name for one in list_scorers(experiment_id=experiment)] == ["polite"]


def evaluate() -> None:
    dataset = datasets.get_dataset(name="capitals")
    capitals = {QUESTIONS[0]: "BEIJING", QUESTIONS[1]: "LYON"}

    def predict(question: str) -> str:
        return capitals.get(question, question.upper())

    first = mlflow.genai.evaluate(data=dataset, predict_fn=predict, scorers=[exact, length])
    assert first.metrics["exact/mean"] == 2 / 3, first.metrics
    assert len(first.result_df) == 3
    capitals[QUESTIONS[1]] = "PARIS"
    second = mlflow.genai.evaluate(data=dataset.to_df(), predict_fn=predict, scorers=[exact, length])
    assert second.metrics["exact/mean"] == 1, second.metrics
    [used] = mlflow.get_run(first.run_id).inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("capitals", dataset.digest)
    found = mlflow.search_traces(run_id=first.run_id, return_type="list")
    said = sorted(one.value for trace in found for one in trace.info.assessments if one.name == "exact")
    assert said == [False, True, True], said
    again = mlflow.genai.evaluate(data=mlflow.search_traces(run_id=first.run_id), scorers=[length])
    assert len(again.result_df) == 3
    for run in (first, again):  # the same traces belong to both
        assert len(mlflow.search_traces(run_id=run.run_id, return_type="list")) == 3


def count_traces(experiment: str) -> None:
    mean = MetricAggregation(aggregation_type=AggregationType.AVG)
    half = MetricAggregation(aggregation_type=AggregationType.PERCENTILE, percentile_value=50)
    points = _get_store().query_trace_metrics(
        experiment_ids=[experiment], view_type=MetricViewType.ASSESSMENTS, metric_name="assessment_value",
        aggregations=[mean, half], dimensions=["assessment_name"],
    )  # fmt: skip
    values = {point.dimensions["assessment_name"]: point.values for point in points}
    assert values["exact"] == {"AVG": 5 / 6, "P50.0": 1}, values


if __name__ == "__main__":
    chosen = mlflow.set_experiment("capitals").experiment_id
    keep_datasets(chosen)
    keep_scorers(chosen)
    evaluate()
    count_traces(chosen)
    print("done")
