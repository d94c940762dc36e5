"""Train a small network with Keras; autologging reports its parameters and metrics."""

import os

os.environ.setdefault("KERAS_BACKEND", "torch")  # or tensorflow, jax

import keras
import mlflow
import numpy

mlflow.set_experiment("quickstart")
mlflow.autolog()

x = numpy.random.rand(256, 4)
y = x.sum(axis=1) > 2
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
with mlflow.start_run(run_name="Keras"):
    model.fit(x, y, epochs=5, validation_split=0.25, verbose=2)
