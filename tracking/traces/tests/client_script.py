"""What an unmodified MLflow 3 client does with traces and prompts. Run by test_traces_clients.py.

The language model is a stand-in that answers as OpenAI's protocol does: what is tried is the client and the platform.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"

import mlflow
import openai
from mlflow.entities import AssessmentSource


class StandIn(BaseHTTPRequestHandler):
    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = {"role": "assistant", "content": "Beijing 北京"}
        answer = {
            "id": "chat-1", "object": "chat.completion", "created": 1, "model": given["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        }  # fmt: skip
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def serve() -> str:
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


def autolog(url: str) -> str:
    mlflow.openai.autolog()
    client = openai.OpenAI(base_url=url, api_key="none")

    @mlflow.trace(name="answer", attributes={"n": 1, "x": [1.5, None, {"a": True}]})
    def answer(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        mlflow.update_current_trace(tags={"team": "red"}, metadata={"mlflow.trace.session": "s-1"})
        return client.chat.completions.create(model="gpt-4o-mini", messages=messages).choices[0].message.content

    assert answer("capital of China?") == "Beijing 北京"
    return mlflow.get_last_active_trace_id()


def traces(url: str) -> None:
    experiment = mlflow.set_experiment("chat").experiment_id
    key = autolog(url)
    trace = mlflow.get_trace(key)
    assert trace.info.state == "OK", trace.info
    assert trace.info.trace_metadata["mlflow.trace.session"] == "s-1"
    assert trace.info.token_usage["total_tokens"] == 15, trace.info
    assert sorted(span.name for span in trace.data.spans) == ["Completions", "answer"], trace.data.spans
    root = next(span for span in trace.data.spans if span.parent_id is None)
    assert root.inputs == {"question": "capital of China?"}
    assert root.outputs == "Beijing 北京"
    assert root.attributes["x"] == [1.5, None, {"a": True}], root.attributes
    model = next(span for span in trace.data.spans if span.parent_id)
    assert model.span_type == "CHAT_MODEL"
    assert model.parent_id == root.span_id
    client = mlflow.MlflowClient()
    client.set_trace_tag(key, "k", "v")
    assert mlflow.get_trace(key).info.tags["k"] == "v"
    client.delete_trace_tag(key, "k")
    feedback = mlflow.log_feedback(
        trace_id=key, name="good", value=True, rationale="it is right",
        source=AssessmentSource(source_type="HUMAN", source_id="alice"),
    )  # fmt: skip
    expected = mlflow.log_expectation(trace_id=key, name="facts", value=["Beijing", {"a": 1}])
    said = {one.name: one for one in mlflow.get_trace(key).info.assessments}
    assert said["good"].feedback.value is True
    assert said["facts"].expectation.value == ["Beijing", {"a": 1}], said["facts"]
    worse = mlflow.entities.Feedback(name="good", value=False)
    mlflow.update_assessment(trace_id=key, assessment_id=feedback.assessment_id, assessment=worse)
    assert mlflow.get_assessment(key, feedback.assessment_id).feedback.value is False
    mlflow.delete_assessment(trace_id=key, assessment_id=expected.assessment_id)
    search(experiment, key)


def search(experiment: str, key: str) -> None:
    @mlflow.trace
    def broken():
        raise ValueError("no")

    with contextlib.suppress(ValueError):
        broken()
    with mlflow.start_run() as run:

        @mlflow.trace
        def inside():
            return 1

        inside()

    def names(text: str = "", **more) -> list[str]:
        found = mlflow.search_traces(locations=[experiment], filter_string=text, return_type="list", **more)
        assert all(trace.data.spans for trace in found)
        return [trace.info.tags["mlflow.traceName"] for trace in found]

    assert names() == ["inside", "broken", "answer"], names()
    assert names("status = 'ERROR'") == ["broken"]
    assert names("tags.team = 'red'") == ["answer"]
    assert names(run_id=run.info.run_id) == ["inside"]
    assert names("span.type = 'CHAT_MODEL'") == ["answer"]
    assert names("trace.text LIKE '%capital%'") == ["answer"]
    assert names(order_by=["timestamp_ms ASC"]) == ["answer", "broken", "inside"]
    assert mlflow.MlflowClient().delete_traces(experiment, trace_ids=[key]) == 1
    assert names() == ["inside", "broken"]


def evaluation() -> None:
    mlflow.set_experiment("evaluated")

    @mlflow.genai.scorer
    def exact(outputs, expectations) -> bool:
        return outputs == expectations["expected_response"]

    data = [
        {"inputs": {"question": text}, "expectations": {"expected_response": expected}}
        for text, expected in (("a", "A"), ("b", "c"))
    ]
    result = mlflow.genai.evaluate(data=data, predict_fn=lambda question: question.upper(), scorers=[exact])
    assert result.metrics["exact/mean"] == 0.5, result.metrics
    found = mlflow.search_traces(run_id=result.run_id, return_type="list")
    said = [{one.name: one.value for one in trace.info.assessments} for trace in found]
    assert sorted(one["exact"] for one in said) == [False, True], said
    assert {one["expected_response"] for one in said} == {"A", "c"}
    assert mlflow.get_run(result.run_id).data.metrics["exact/mean"] == 0.5


def prompts() -> None:
    first = mlflow.genai.register_prompt("summary", "Summarise {{text}}", commit_message="first", tags={"a": "b"})
    assert first.version == 1
    chat = [{"role": "system", "content": "You are {{who}}"}, {"role": "user", "content": "{{text}}"}]
    assert mlflow.genai.register_prompt("summary", chat).version == 2
    mlflow.genai.set_prompt_alias("summary", alias="production", version=1)
    assert mlflow.genai.load_prompt("prompts:/summary@production").format(text="it") == "Summarise it"
    assert mlflow.genai.load_prompt("summary", version=2).template == chat
    assert mlflow.genai.load_prompt("prompts:/summary/1").commit_message == "first"
    assert mlflow.genai.load_prompt("prompts:/nothing/1", allow_missing=True) is None
    assert [prompt.name for prompt in mlflow.genai.search_prompts()] == ["summary"]
    client = mlflow.MlflowClient()
    assert client.search_registered_models() == []
    client.set_prompt_version_tag("summary", 1, "tried", "yes")
    assert mlflow.genai.load_prompt("summary", version=1).tags["tried"] == "yes"
    versions = client.search_prompt_versions("summary")
    assert sorted(int(version.version) for version in versions) == [1, 2], versions
    mlflow.genai.delete_prompt_alias("summary", alias="production")
    client.delete_prompt_version("summary", "2")
    client.delete_prompt_version("summary", "1")
    client.delete_prompt("summary")
    assert list(mlflow.genai.search_prompts()) == []


if __name__ == "__main__":
    address = serve()
    parts = os.environ.get("PARTS", "traces evaluation prompts").split()
    if "traces" in parts:
        traces(address)
    if "evaluation" in parts:
        evaluation()
    if "prompts" in parts:
        prompts()
    print("done")
