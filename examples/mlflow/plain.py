"""Report a run with MLflow's own calls."""

import time

import mlflow

mlflow.set_experiment("quickstart")  # a project on the platform, created if it does not exist
with mlflow.start_run(run_name="first run"):
    mlflow.log_params({"lr": 0.1, "epochs": 20})
    for epoch in range(20):
        time.sleep(0.1)  # train here
        mlflow.log_metrics({"loss": 0.8**epoch, "accuracy": 1 - 0.5 * 0.8**epoch}, step=epoch)
