"""Train a small network with Hugging Face transformers; its callback for MLflow reports the run."""

import mlflow
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

mlflow.set_experiment("quickstart")

sizes = {"vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
model = BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=8, num_labels=2))
texts = torch.randint(0, 32, (64, 6))
rows = [{"input_ids": text, "labels": (text[0] > 15).long()} for text in texts]
options = TrainingArguments(
    "out", report_to="mlflow", run_name="transformers", num_train_epochs=3, logging_steps=4, save_strategy="no"
)
Trainer(model, options, train_dataset=rows).train()
