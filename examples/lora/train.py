"""Fine-tunes a language model with LoRA (peft) on lines of text, and merges the result into a whole model.

Reads $MLP_DATASETS/{--dataset}/*.txt, without --dataset a few lines of its own. --base is the folder of a model in
Hugging Face's format, such as $MLP_DATASETS/llama; without it a tiny random model is made, whose tokens are bytes. Only
the small adapters are trained; merged into the base model they are written to ckpt/model, from which the platform makes
a model that it serves: requirements.txt goes along. See ../README.md.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from pathlib import Path

import torch
from mlp_report import report
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

OUT, LONGEST = Path("ckpt/model"), 128  # tokens of a line that are learned from
LINES = ["the quick brown fox jumps over the lazy dog", "a model learns what it is shown", "hello, world"] * 8


def base(folder: str) -> tuple:
    """Return a model and its tokenizer: those in a folder, else tiny random ones."""
    if folder:
        return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    letters = {letter: at for at, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words = Tokenizer(models.BPE(vocab={**letters, "<|end|>": len(letters)}, merges=[]))
    words.pre_tokenizer, words.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<|end|>", eos_token="<|end|>")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    end = {"bos_token_id": len(letters), "eos_token_id": len(letters)}
    config = LlamaConfig(vocab_size=len(letters) + 1, max_position_embeddings=256, **sizes, **end)
    return LlamaForCausalLM(config), tokenizer


def load(dataset: str) -> list[str]:
    """Return the lines to learn."""
    if not dataset:
        return LINES
    folder = Path(os.environ.get("MLP_DATASETS", ".")) / dataset
    lines = [line for file in sorted(folder.rglob("*.txt")) for line in file.read_text().splitlines() if line.strip()]
    if not lines:
        raise SystemExit(f"{folder} has no *.txt with a line: does the job use the dataset {dataset}?")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="", help="folder of the model to fine-tune (default: a tiny random one)")
    parser.add_argument("--dataset", default="", help="its name below $MLP_DATASETS (default: lines of its own)")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="pause after each epoch, for demos")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    model, tokenizer = base(options.base)
    model = get_peft_model(model, LoraConfig(r=options.rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    trained, whole = model.get_nb_trainable_parameters()
    print(f"training {trained} of {whole} numbers", flush=True)
    lines = [[*tokenizer.encode(line)[:LONGEST], tokenizer.eos_token_id] for line in load(options.dataset)]
    optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), options.lr)
    for epoch in range(1, options.epochs + 1):
        total = 0.0
        for at in torch.randperm(len(lines)).tolist():
            tokens = torch.tensor([lines[at]])
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch:3}/{options.epochs}  loss {total / len(lines):.4f}", flush=True)
        report(epoch=epoch, loss=total / len(lines), progress=100 * epoch / options.epochs)
        time.sleep(options.slow)

    model.merge_and_unload().save_pretrained(OUT)
    tokenizer.save_pretrained(OUT)
    shutil.copy(Path(__file__).with_name("requirements.txt"), OUT)
    print(f"saved {OUT}", flush=True)


if __name__ == "__main__":
    main()
