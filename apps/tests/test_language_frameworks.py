"""A language model by transformers, from its folder to the answers that OpenAI's own client gets. Nothing is fetched.

transformers is large, so it is installed apart: `make frameworks` runs these tests, which are skipped where
MLP_FRAMEWORKS, the Python that has it, is not given. The model is tiny and random; it writes bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
import requests

from apps import keys
from apps.launching import SERVING
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.launching import PROGRAM
from models_app.models import Model
from resources.models import Tenant

from .conftest import NAMES
from .language_models import chatting
from .test_language_server import body

PYTHON = os.environ.get("MLP_FRAMEWORKS", "")

pytestmark = pytest.mark.skipif(not PYTHON, reason="MLP_FRAMEWORKS is not given: make frameworks")

MAKE = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

letters = {letter: at for at, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
words = Tokenizer(models.BPE(vocab={**letters, "<|end|>": 256}, merges=[]))
words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|end|>", bos_token="<|end|>")
template = "{% for one in messages %}{{ one.role }}: {{ one.content }}\\n{% endfor %}"
ends = dict(bos_token_id=256, eos_token_id=256)
torch.manual_seed(3)
gpt = GPT2LMHeadModel(GPT2Config(vocab_size=257, n_positions=128, n_embd=16, n_layer=1, n_head=2, **ends))
gpt.save_pretrained(sys.argv[1] + "/gpt", max_shard_size="5KB")
tokenizer.save_pretrained(sys.argv[1] + "/gpt")
sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
llama = LlamaForCausalLM(LlamaConfig(vocab_size=257, max_position_embeddings=128, **sizes, **ends))
llama.generation_config.update(do_sample=True, temperature=0.1, top_k=1, repetition_penalty=9.0)
llama.save_pretrained(sys.argv[1] + "/llama")
tokenizer.chat_template = template
tokenizer.save_pretrained(sys.argv[1] + "/llama")
"""

ASK = """
import json, openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="a key", max_retries=0)
ask = client.chat.completions.create
seen = {"models": [model.id for model in client.models.list()], "model": client.models.retrieve("lm").id}
chat = dict(model="lm", messages=[{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}])
same = dict(seed=7, max_tokens=20)

def plain(answer):
    return dict(text=answer.choices[0].message.content, finish=answer.choices[0].finish_reason,
                usage=answer.usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"}))

seen["first"], seen["again"] = plain(ask(**chat, **same)), plain(ask(**chat, **same))
seen["other"] = plain(ask(**chat, seed=8, max_completion_tokens=20))
seen["greedy"] = plain(ask(**chat, temperature=0, max_tokens=20))
chunks = list(ask(**chat, **same, stream=True, stream_options={"include_usage": True}))
seen["streamed"] = dict(
    text="".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
    finish=[chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1],
    usage=chunks[-1].usage.model_dump(include={"prompt_tokens", "completion_tokens", "total_tokens"}))
stop = seen["first"]["text"][4:6]
seen["stopped"] = plain(ask(**chat, **same, stop=stop))
seen["stop"] = stop
text = client.completions.create(model="lm", prompt="once", **same)
seen["text"] = dict(text=text.choices[0].text, finish=text.choices[0].finish_reason)
tokens = client.completions.create(model="lm", prompt=[78, 79], **same)
seen["tokens"] = tokens.usage.prompt_tokens
seen["streamed_text"] = "".join(
    chunk.choices[0].text for chunk in client.completions.create(model="lm", prompt="once", **same, stream=True))
empty = client.completions.create(model="lm", prompt="", max_tokens=2)
seen["empty"] = [empty.usage.prompt_tokens, empty.usage.completion_tokens]
seen["unlimited"] = plain(ask(**chat, seed=1))

def refused(call):
    try:
        call()
    except openai.APIStatusError as problem:
        return [type(problem).__name__, problem.code, problem.param]

seen["refused"] = [
    refused(lambda: ask(**chat, n=2)),
    refused(lambda: ask(**{**chat, "model": "other"})),
    refused(lambda: ask(model="lm", messages=[{"role": "user", "content": "x" * 500}])),
    refused(lambda: ask(**chat, max_tokens=4096)),
    refused(lambda: client.embeddings.create(model="lm", input="x")),
    refused(lambda: client.completions.create(model="lm", prompt=[999])),
]
print(json.dumps(seen))
"""

LANGCHAIN = """
import sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="lm", base_url=sys.argv[1] + "/v1", api_key="a key", max_tokens=12, temperature=0, seed=1)
whole = model.invoke("hello")
assert whole.usage_metadata["output_tokens"] == 12, whole
assert "".join(piece.content for piece in model.stream("hello")) == whole.content
"""

HELLO = """
import json, openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key=sys.argv[2], max_retries=0)
try:
    answer = client.chat.completions.create(
        model="lm", messages=[{"role": "user", "content": "hello"}], max_tokens=6, stream=True,
        stream_options={"include_usage": True})
    print(json.dumps(list(answer)[-1].usage.completion_tokens))
except openai.APIStatusError as problem:
    print(json.dumps(type(problem).__name__))
"""


PIECES = r"""
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from chat_transformers import Pieces
from transformers import AutoTokenizer
tokenizer, seen = AutoTokenizer.from_pretrained(sys.argv[2]), []
for text in ("na\u00efve \U0001f917 \u65e5\u672c  two spaces", "a\nb"):
    pieces = []
    writer = Pieces(tokenizer, lambda piece: pieces.append(piece.text))
    writer.put(torch.tensor([[1, 2, 3]]))
    for token in tokenizer.encode(text):
        writer.put(torch.tensor([token]))
    writer.finish("stop")
    seen.append(["".join(pieces) == text, any("\ufffd" in piece for piece in pieces)])
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("language")
    run(MAKE, str(folder))
    return folder


def run(script: str, *arguments: str) -> str:
    env = {"PATH": os.defpath, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([PYTHON, "-c", script, *arguments], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check(folder, out) -> tuple[int, str]:
    out.mkdir(exist_ok=True)
    command = [PYTHON, str(PROGRAM), str(folder), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("name", "takes"), [("gpt", "prompt"), ("llama", "messages")])
def test_a_model_that_loads_passes_the_check(folders, tmp_path, name, takes):
    code, words = check(folders / name, tmp_path / "out")
    assert code == 0, words
    inspection = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (inspection["format"], inspection["inputs"][0]["name"]) == ("transformers", takes)


def test_openais_client_chats_with_the_model(folders):
    with chatting(folders / "llama", python=PYTHON) as url:
        seen = json.loads(run(ASK, url))
        run(LANGCHAIN, url)
    assert (seen["models"], seen["model"]) == (["lm", "older"], "lm")
    first = seen["first"]
    assert first == seen["again"] == seen["streamed"]
    assert first["text"] not in (seen["other"]["text"], seen["greedy"]["text"]), "its own temperature does not count"
    assert (first["finish"], first["usage"]["completion_tokens"]) == ("length", 20)
    assert first["usage"]["prompt_tokens"] == len("system: be brief\nuser: hello\n")
    assert first["usage"]["total_tokens"] == first["usage"]["prompt_tokens"] + 20
    before = first["text"].partition(seen["stop"])[0]
    assert (seen["stopped"]["text"], seen["stopped"]["finish"]) == (before, "stop")
    assert seen["stopped"]["usage"]["completion_tokens"] < 20
    assert (seen["text"]["text"], seen["tokens"]) == (seen["streamed_text"], 2)
    assert seen["empty"][0] == 1, "the token with which texts begin"
    assert seen["unlimited"]["usage"]["total_tokens"] <= 128
    assert seen["refused"] == [
        ["BadRequestError", "unsupported_parameter", "n"],
        ["NotFoundError", "model_not_found", "model"],
        ["BadRequestError", "context_length_exceeded", "messages"],
        ["BadRequestError", "context_length_exceeded", "messages"],
        ["NotFoundError", "unknown_url", None],
        ["BadRequestError", None, "prompt"],
    ]


def test_characters_of_several_tokens_are_sent_whole(folders):
    assert json.loads(run(PIECES, str(SERVING), str(folders / "llama"))) == [[True, False], [True, False]]


def test_messages_that_the_template_refuses_are_the_callers_fault(folders, tmp_path):
    folder = tmp_path / "strict"
    shutil.copytree(folders / "llama", folder)
    (folder / "chat_template.jinja").write_text("{{ raise_exception('no system prompt, please') }}")
    with chatting(folder, python=PYTHON) as url:
        answer = requests.post(f"{url}/v1/chat/completions", json=body("hello"), timeout=LIMIT_S)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")
    assert "no system prompt, please" in answer.json()["error"]["message"]


def test_a_model_that_does_not_fit_its_files_is_refused(folders, tmp_path):
    folder = tmp_path / "wrong"
    shutil.copytree(folders / "llama", folder)
    config = json.loads((folder / "config.json").read_text())
    for change, words in (({"vocab_size": 99}, ""), ({"num_hidden_layers": 2}, "the weights do not have")):
        (folder / "config.json").write_text(json.dumps(config | change))
        code, said = check(folder, tmp_path / "out")
        assert (code, words in said) == (1, True)


LARGE = """
import sys
sys.path.insert(0, sys.argv[1])
import hugging_face
from pathlib import Path
hugging_face.LOADED_BYTES = 0
try:
    print(hugging_face.inspect(Path(sys.argv[2]))["format"])
except hugging_face.Unusable as problem:
    print(problem)
"""


def test_large_weights_are_compared_without_loading_them(folders, tmp_path):
    arguments = str(PROGRAM.parent), str(tmp_path / "large")
    shutil.copytree(folders / "llama", tmp_path / "large")
    assert run(LARGE, *arguments).strip() == "transformers"
    path = tmp_path / "large" / "config.json"
    path.write_text(path.read_text().replace('"intermediate_size": 16', '"intermediate_size": 17'))
    assert "config.json says [17, 16]" in run(LARGE, *arguments)


@pytest.mark.django_db(transaction=True)
def test_a_folder_becomes_an_application_with_its_packages(as_alice, alice, home, folders, until, ready, front):
    """The package is installed from the index, as for any model that names it in requirements.txt."""
    shutil.copytree(folders / "llama", home / "lm")
    (home / "lm" / "requirements.txt").write_text(f"transformers=={version()}\n")
    Tenant.objects.update(ram=8192)
    assert as_alice.call("post", "users/alice/models", {"name": "lm", "src": "home/lm"}).status_code == 201

    def checked() -> bool:
        models_reconcile.run()
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    model = Model.objects.get()
    assert (model.state, model.format) == ("ready", "transformers"), model.reason
    order = {"name": next(NAMES), "model_name": "lm", "cpu": 1, "ram": 2048}
    assert as_alice.call("post", "users/alice/apps", order).status_code == 201
    app = ready(model.served_by.get())
    _row, text = keys.create(app=app, name="shop", by="alice")
    assert json.loads(run(HELLO, f"{front}/alice/{app.name}", text)) == 6
    keys.revoke(app=app, name="shop", by="alice")
    assert json.loads(run(HELLO, f"{front}/alice/{app.name}", text)) == "AuthenticationError"


def version() -> str:
    return run("import transformers; print(transformers.__version__)").strip()
