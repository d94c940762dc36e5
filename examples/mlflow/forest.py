"""Train a random forest with scikit-learn; autologging reports its parameters and scores."""

import mlflow
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

mlflow.set_experiment("quickstart")
mlflow.autolog()

x, y = load_digits(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, random_state=0)
with mlflow.start_run(run_name="scikit-learn"):
    model = RandomForestClassifier(n_estimators=50, max_depth=8, random_state=0).fit(x_train, y_train)
    print("accuracy", model.score(x_test, y_test))
