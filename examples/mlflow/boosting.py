"""Train boosted trees with XGBoost; autologging reports parameters and the metrics of each round."""

import mlflow
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

mlflow.set_experiment("quickstart")
mlflow.autolog()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
train, test = xgboost.DMatrix(x_train, y_train), xgboost.DMatrix(x_test, y_test)
options = {"objective": "multi:softprob", "num_class": 10, "max_depth": 3}
with mlflow.start_run(run_name="XGBoost"):
    xgboost.train(options, train, num_boost_round=20, evals=[(test, "test")], verbose_eval=5)
