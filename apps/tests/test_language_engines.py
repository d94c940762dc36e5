"""Embeddings, tools, JSON and GGUF by the real engines, as the unmodified clients of OpenAI and LangChain get them.

The packages are installed apart, see test_language_frameworks.py. The models are tiny and random; they write bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from django.conf import settings

from apps import keys
from jobs.environment import REPORT_DIR
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model
from models_app.tests.gguf_files import CONTEXT, STRING, values, write, write_parts
from resources.models import Tenant

from .conftest import NAMES, bearer_of
from .language_models import chatting
from .test_gateway import echo
from .test_language_frameworks import HELLO, PYTHON, check, folders, run

__all__ = ["echo", "folders"]

pytestmark = pytest.mark.skipif(not PYTHON, reason="MLP_FRAMEWORKS is not given: make frameworks")

ENCODER = """
import json, os, sys, torch
from transformers import AutoTokenizer, BertConfig, BertModel
place = sys.argv[1] + "/bert"
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
torch.manual_seed(3)
model = BertModel(BertConfig(vocab_size=257, max_position_embeddings=64, **sizes)).eval()
model.config.matryoshka_dimensions = [8]
model.save_pretrained(place)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1] + "/gpt")
tokenizer.pad_token = tokenizer.eos_token
tokenizer.save_pretrained(place)
os.mkdir(place + "/1_Pooling")
modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
modules = [{"type": "sentence_transformers.models." + kind, "path": path} for kind, path in modules]
json.dump(modules, open(place + "/modules.json", "w"))
json.dump({"pooling_mode_cls_token": True}, open(place + "/1_Pooling/config.json", "w"))
with torch.no_grad():
    hidden = model(torch.tensor([tokenizer.encode("hello")])).last_hidden_state[0, 0]
print(json.dumps((hidden / hidden.norm()).tolist()))
"""

EMBED = """
import json, openai, sys
from langchain_openai import OpenAIEmbeddings
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="a key", max_retries=0)
def vector(given, **more):
    return client.embeddings.create(model="lm", input=given, **more).data[0].embedding
several = client.embeddings.create(model="lm", input=["a longer text than", "hello"])
lang = OpenAIEmbeddings(
    model="lm", base_url=sys.argv[1] + "/v1", api_key="a key", check_embedding_ctx_length=False)
seen = {"packed": vector("hello"), "plain": vector("hello", encoding_format="float"),
        "tokens": vector([71, 68, 75, 75, 78]), "batch": several.data[1].embedding,
        "lang": lang.embed_query("hello"), "usage": several.usage.total_tokens, "short": vector("hello", dimensions=8)}
refused = []
for more in ({"input": "x" * 65}, {"input": "a", "dimensions": 5}, {"input": [[999]]}, {"input": ""}):
    try:
        client.embeddings.create(model="lm", **more)
    except openai.BadRequestError as problem:
        refused.append(problem.param)
print(json.dumps({**seen, "refused": refused}))
"""

CALL = """
import json, openai, sys
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="a key", max_retries=0)
say = [{"role": "user", "content": "hello"}]
class Point(BaseModel):
    x: int
    kind: str
schema = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99},
          "kind": {"$ref": "#/$defs/kind"}}, "required": ["x", "kind"], "additionalProperties": False,
          "$defs": {"kind": {"enum": ["a", "b"]}}}
tools = [{"type": "function", "function": {"name": "move", "parameters": schema}}]
named = {"type": "function", "function": {"name": "move"}}
def ask(**more):
    return client.chat.completions.create(model="lm", messages=say, **more)
called = ask(tools=tools, tool_choice=named).choices[0]
call = called.message.tool_calls[0]
pieces = [chunk.choices[0].delta for chunk in ask(tools=tools, tool_choice="required", stream=True)]
streamed = [one for piece in pieces for one in piece.tool_calls or []]
say += [called.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "done"}]
after = ask(tools=tools, max_tokens=3)
say = say[:1]
shaped = ask(response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": schema}})
try:
    ask(response_format={"type": "json_schema", "json_schema": {"name": "p", "schema": {"not": {}}}})
except openai.BadRequestError as problem:
    refused = problem.param
tool = ChatOpenAI(model="lm", base_url=sys.argv[1] + "/v1", api_key="a key").bind_tools(tools, tool_choice="move")
print(json.dumps({
    "called": [called.finish_reason, call.function.name, json.loads(call.function.arguments)],
    "streamed": [one.function.name for one in streamed], "arguments": json.loads(streamed[0].function.arguments),
    "after": after.usage.completion_tokens, "shaped": json.loads(shaped.choices[0].message.content),
    "refused": refused, "lang": tool.invoke("hello").tool_calls[0]["name"]}))
"""

GGUF = """
import json, openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="a key", max_retries=0)
def ask(**more):
    return client.chat.completions.create(
        model="lm", messages=[{"role": "user", "content": "hi"}], **{"max_tokens": 20, **more})
def text(answer):
    return answer.choices[0].message.content
first, stop = ask(seed=7), text(ask(seed=7))[2:4]
def refused(**more):
    try:
        ask(**more)
    except openai.BadRequestError as problem:
        return problem.code
print(json.dumps({
    "same": text(first) == text(ask(seed=7)) != text(ask(seed=8)), "greedy": text(ask(temperature=0)) ==
    text(ask(temperature=0, seed=5)), "usage": first.usage.prompt_tokens, "finish": first.choices[0].finish_reason,
    "streamed": "".join(one.choices[0].delta.content or "" for one in ask(seed=7, stream=True)) == text(first),
    "stopped": text(ask(seed=7, stop=stop)) == text(first).partition(stop)[0],
    "tokens": client.completions.create(model="lm", prompt=[5, 6], max_tokens=2).usage.prompt_tokens,
    "empty": client.completions.create(model="lm", prompt="", max_tokens=2).usage.prompt_tokens,
    "tools": ask(tools=[{"type": "function", "function": {"name": "f"}}]).usage.prompt_tokens,
    "context": client.models.list().data[0].max_model_len,
    "refused": [refused(max_tokens=5000), refused(response_format={"type": "json_object"})]}))
"""

CLASSES = """
import json, openai, sys
def seen(address, key):
    client = openai.OpenAI(base_url=address + "/v1", api_key=key, max_retries=0)
    try:
        client.chat.completions.create(model="lm", messages=[{"role": "user", "content": "x"}])
    except openai.APIStatusError as problem:
        return [type(problem).__name__, problem.code, bool(problem.body),
                problem.response.headers.get("retry-after") is not None]
front, key, token = sys.argv[1:4]
print(json.dumps([seen(front, "wrong"), seen(front + "none", token), seen(front, key), seen(front, key)]))
"""


def test_an_encoder_embeds_as_its_modules_say(folders, tmp_path):
    expected = json.loads(run(ENCODER, str(folders)))
    code, words = check(folders / "bert", tmp_path / "out")
    assert code == 0, words
    outputs = json.loads((tmp_path / "out" / "inspection.json").read_text())["outputs"]
    assert outputs == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 16]}]
    with chatting(folders / "bert", python=PYTHON) as url:
        seen = json.loads(run(EMBED, url))
    for way in ("packed", "plain", "tokens", "batch", "lang"):
        assert seen[way] == pytest.approx(expected, abs=1e-5), way
    length = sum(number**2 for number in expected[:8]) ** 0.5
    assert seen["short"] == pytest.approx([number / length for number in expected[:8]], abs=1e-5)
    assert (seen["usage"], seen["refused"]) == (23, ["input", "dimensions", "input", "input"])


def test_calls_and_json_follow_their_schema(folders, tmp_path):
    """Also of a model that writes anything: the tokens that break the schema are impossible."""
    folder = tmp_path / "calling"
    shutil.copytree(folders / "llama", folder)
    template, config = folder / "chat_template.jinja", folder / "config.json"
    template.write_text(template.read_text() + "{% if tools %}{{ tools | tojson }}<tool_call></tool_call>{% endif %}")
    config.write_text(config.read_text().replace('"max_position_embeddings": 128', '"max_position_embeddings": 1024'))
    with chatting(folder, python=PYTHON) as url:
        seen = json.loads(run(CALL, url))
    finish, name, arguments = seen["called"]
    assert (finish, name, seen["streamed"], seen["lang"]) == ("tool_calls", "move", ["move"], "move")
    for given in (arguments, seen["arguments"], seen["shaped"]):
        assert set(given) == {"x", "kind"}
        assert (0 <= given["x"] <= 99, given["kind"] in ("a", "b")) == (True, True)
    assert (seen["after"], seen["refused"]) == (3, "response_format")


def test_the_example_of_lora_writes_a_model_that_loads(tmp_path):
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(REPORT_DIR),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    command = [PYTHON, str(settings.BASE_DIR / "examples" / "lora" / "train.py"), "--epochs", "2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (float(line.split()[3]) for line in done.stdout.splitlines() if line.startswith("epoch  "))
    assert second < first, done.stdout
    code, words = check(tmp_path / "ckpt" / "model", tmp_path / "out")
    assert code == 0, words
    pinned = (tmp_path / "ckpt" / "model" / "requirements.txt").read_text().split()
    assert set(pinned) <= {*(settings.BASE_DIR / "requirements-frameworks.txt").read_text().split()}


@pytest.mark.parametrize("several", [False, True])
def test_a_gguf_file_is_checked_and_served(tmp_path, several):
    folder = tmp_path / "model"
    folder.mkdir()
    write_parts(folder) if several else write(folder / "tiny.gguf")
    code, words = check(folder, tmp_path / "out")
    assert code == 0, words
    inspection = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (inspection["format"], inspection["about"]["context"]) == ("gguf", CONTEXT)
    with chatting(folder, python=PYTHON) as url:
        seen = json.loads(run(GGUF, url))
    assert all(seen[name] for name in ("same", "greedy", "streamed", "stopped")), seen
    assert (seen["usage"], seen["finish"]) == (len("<user: hi\n"), "length"), "the first token is that of texts"
    assert (seen["tokens"], seen["empty"], seen["context"]) == (2, 1, CONTEXT)
    assert seen["tools"] > seen["usage"]
    assert seen["refused"] == ["context_length_exceeded", "unsupported_parameter"]


def test_a_gguf_file_that_llama_cpp_does_not_load_is_refused(tmp_path):
    write(tmp_path / "x.gguf", values(**{"general.architecture": (STRING, "made-up")}))
    code, words = check(tmp_path, tmp_path / "out")
    assert (code, "llama.cpp does not load it" in words) == (1, True)


@pytest.mark.django_db(transaction=True)
def test_a_gguf_file_becomes_an_application(as_alice, alice, home, until, ready, front, monkeypatch):
    """With a Python of runs that has llama-cpp-python: to build it for the model would take too long here."""
    monkeypatch.setattr(settings, "RUN_PYTHON", PYTHON)
    home.mkdir(parents=True, exist_ok=True)
    write(home / "tiny.gguf")
    Tenant.objects.update(ram=8192)
    assert as_alice.call("post", "users/alice/models", {"name": "lm", "src": "home/tiny.gguf"}).status_code == 201

    def checked() -> bool:
        models_reconcile.run()
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    model = Model.objects.get()
    assert (model.state, model.format) == ("ready", "gguf"), model.reason
    assert model.signature["about"] == {
        "architecture": "llama", "quantization": "F32", "context": CONTEXT, "parts": 1, "chat_template": True,
    }  # fmt: skip
    order = {"name": next(NAMES), "model_name": "lm", "cpu": 1, "ram": 1024}
    assert as_alice.call("post", "users/alice/apps", order).status_code == 201
    app = ready(model.served_by.get())
    _row, text = keys.create(app=app, name="shop", by="alice")
    assert json.loads(run(HELLO, f"{front}/alice/{app.name}", text)) == 6


@pytest.mark.django_db(transaction=True)
def test_openais_client_raises_the_class_of_each_refusal(front, echo, alice):
    _row, text = keys.create(app=echo, name="shop", by="alice", rate=1)
    address, token = f"{front}/alice/{echo.name}", bearer_of(alice)["Authorization"].removeprefix("Bearer ")
    wrong, missing, _first, limited = json.loads(run(CLASSES, address, text, token))
    assert wrong == ["AuthenticationError", "invalid_api_key", True, False]
    assert missing == ["NotFoundError", "application_not_found", True, False]
    assert limited == ["RateLimitError", "rate_limit_exceeded", True, True]
