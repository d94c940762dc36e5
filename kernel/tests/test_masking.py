"""What looks secret in the command of a process is hidden, and nothing else."""

from __future__ import annotations

import pytest

from kernel.masking import HIDDEN, command, secrets_in

TOKEN = "mlp_u7_" + "a1-B" * 8


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("train.py --lr 0.1 --epochs=3", "train.py --lr 0.1 --epochs=3"),
        ("--password hunter22 -v", f"--password {HIDDEN} -v"),
        ("--api-key=abc +db.password=p@ss api_key=x", f"--api-key={HIDDEN} +db.password={HIDDEN} api_key={HIDDEN}"),
        ("--use-token --lr 1", "--use-token --lr 1"),
        (
            "--tokenizer bert --max-tokens 512 --max_new_tokens=9",
            "--tokenizer bert --max-tokens 512 --max_new_tokens=9",
        ),
        ("--keyboard qwerty --bypass cache --monkey x", "--keyboard qwerty --bypass cache --monkey x"),
        ("--token=", "--token="),
        ("https://user:word@host/x", f"https://{HIDDEN}@host/x"),
        (f"curl {TOKEN}", f"curl {HIDDEN}"),
        ("hf_abcdefghij0123456789", HIDDEN),
        ("SECRET=s3cr3t-value env", f"SECRET={HIDDEN} env"),
    ],
)
def test_secrets_in_arguments(given, shown):
    assert " ".join(command(given.split(" "))) == shown


def test_the_value_of_a_header_is_hidden():
    assert command(["curl", "-H", "Authorization: Bearer abc.def"]) == [
        "curl",
        "-H",
        f"Authorization: Bearer {HIDDEN}",
    ]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("cd x && train --password hunter22 --lr 0.1", f"cd x && train --password {HIDDEN} --lr 0.1"),
        ("x; TOKEN='a b'  train", f"x; TOKEN={HIDDEN}  train"),
        ("ssh host 'train --password \"x y\" -v'", f"ssh host 'train --password {HIDDEN} -v'"),
        ("a 'b \"c 'd" * 200, "a 'b \"c 'd" * 200),
        ('train --api-key "a b"\n--lr 1', f"train --api-key {HIDDEN}\n--lr 1"),
        ("it's 'all right", "it's 'all right"),
        ("import time; key = 'word'", "import time; key = 'word'"),
    ],
)
def test_secrets_in_a_command_within_a_command(given, shown):
    assert command(["sh", "-c", given]) == ["sh", "-c", shown]


def test_values_of_secret_variables_are_hidden_wherever_they_stand():
    secrets = secrets_in({"WANDB_API_KEY": "0123456789abcdef", "LR": "0.125000", "PASSWORD": "abc"})
    assert command(["x", "key:0123456789abcdef", "0.125000", "abc"], secrets) == [
        "x",
        f"key:{HIDDEN}",
        "0.125000",
        "abc",
    ]
