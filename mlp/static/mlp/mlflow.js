// The addresses that MLflow's clients print, `/mlflow/#/experiments/{id}/runs/{run}`, lead to our own pages.
const link = document.querySelector("[data-mlflow-runs]");
const follow = () => {
  const [, experiment, run] = location.hash.match(/^#\/experiments\/(\d+)(?:\/runs\/([0-9a-f]{32}))?/) ?? [];
  if (run) location.replace(link.dataset.mlflowRuns.replace(/id$/, run));
  else if (experiment) location.replace(link.dataset.mlflowExperiments.replace(/0$/, experiment));
};
addEventListener("hashchange", follow);
follow();
