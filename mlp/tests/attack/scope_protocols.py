"""Which scopes may make which call of MLflow's protocol and of WebDAV, by the promises of docs/tokens.md, as in
scope_rest.py. OPTIONS of WebDAV answers everybody, without a token too.
"""

from __future__ import annotations

MLFLOW = """
# Experiments: logging makes and describes them. Restoring takes from the trash, which is not for `submit`.
POST   experiments/create                                   full submit
GET    experiments/get                                      full read submit
GET    experiments/get-by-name                              full read submit
POST   experiments/update                                   full submit
POST   experiments/delete                                   full
POST   experiments/restore                                  full
POST   experiments/set-experiment-tag                       full submit
POST   experiments/delete-experiment-tag                    full
POST   experiments/search                                   full read submit
GET    experiments/search                                   full read submit
GET    experiments/list                                     full read submit

# Runs: logged and read, not deleted, nor is what is logged.
POST   runs/create                                          full submit
GET    runs/get                                             full read submit
POST   runs/update                                          full submit
POST   runs/delete                                          full
POST   runs/restore                                         full
POST   runs/log-parameter                                   full submit
POST   runs/set-tag                                         full submit
POST   runs/delete-tag                                      full
POST   runs/log-metric                                      full submit
POST   runs/log-batch                                       full submit
GET    metrics/get-history                                  full read submit
GET    metrics/get-history-bulk                             full read submit
GET    metrics/get-history-bulk-interval                    full read submit
POST   runs/search                                          full read submit
POST   runs/log-inputs                                      full submit
POST   runs/outputs                                         full submit
POST   runs/log-model                                       full submit

# Logged models, which belong to runs.
POST   logged-models/search                                 full read submit
POST   logged-models                                        full submit
GET    logged-models/<str:key>                              full read submit
PATCH  logged-models/<str:key>                              full submit
DELETE logged-models/<str:key>                              full
PATCH  logged-models/<str:key>/tags                         full submit
DELETE logged-models/<str:key>/tags/<path:tag>              full
POST   logged-models/<str:key>/params                       full submit
GET    logged-models/<str:key>/artifacts/directories        full read submit
GET    logged-models/<str:key>/artifacts/files              full read submit

# Traces, as runs. Spans come by OTLP (tracking/traces/tests/test_intake.py).
POST   traces                                               full submit
GET    traces/get                                           full read submit
GET    traces/batchGet                                      full read submit
POST   traces/batchGetInfos                                 full read submit
POST   traces/search                                        full read submit
POST   traces/metrics                                       full read submit
POST   traces/delete-traces                                 full
POST   traces/link-prompts                                  full submit
POST   traces/link-to-run                                   full submit
GET    traces/<str:trace>                                   full read submit
PATCH  traces/<str:trace>/tags                              full submit
DELETE traces/<str:trace>/tags                              full
POST   traces/<str:trace>/assessments                       full submit
GET    traces/<str:trace>/assessments/<str:key>             full read submit
PATCH  traces/<str:trace>/assessments/<str:key>             full submit
DELETE traces/<str:trace>/assessments/<str:key>             full

# Evaluation datasets and scorers, as runs: written, not deleted.
POST   datasets/create                                      full submit
POST   datasets/search                                      full read submit
GET    datasets/search                                      full read submit
GET    datasets/<str:dataset>                               full read submit
DELETE datasets/<str:dataset>                               full
PATCH  datasets/<str:dataset>/tags                          full submit
DELETE datasets/<str:dataset>/tags/<path:tag>               full
GET    datasets/<str:dataset>/experiment-ids                full read submit
POST   datasets/<str:dataset>/add-experiments               full submit
POST   datasets/<str:dataset>/remove-experiments            full submit
GET    datasets/<str:dataset>/records                       full read submit
POST   datasets/<str:dataset>/records                       full submit
DELETE datasets/<str:dataset>/records                       full
POST   scorers/register                                     full submit
GET    scorers/list                                         full read submit
GET    scorers/versions                                     full read submit
GET    scorers/get                                          full read submit
DELETE scorers/delete                                       full
GET    scorers/online-configs                               full read submit
PUT    scorers/online-config                                full submit

# Artifacts. What the path is called plays no part: an upload in parts of `delete/get/model.pt` is an upload.
GET    artifacts/list                                       full read submit
GET    mlflow-artifacts/artifacts                           full read submit
GET    mlflow-artifacts/artifacts/<path:path>               full read submit
PUT    mlflow-artifacts/artifacts/<path:path>               full submit
DELETE mlflow-artifacts/artifacts/<path:path>               full
POST   mlflow-artifacts/mpu/create/<path:path>              full submit
POST   mlflow-artifacts/mpu/complete/<path:path>            full submit
POST   mlflow-artifacts/mpu/abort/<path:path>               full submit
GET    get-artifact                                         full read submit

# The registry: reads, by POST too; a token for submission registers, and sets aliases where its user says so.
POST   registered-models/create                             full submit
GET    registered-models/get                                full read submit
GET    registered-models/search                             full read submit
POST   registered-models/search                             full read submit
PATCH  registered-models/update                             full
POST   registered-models/rename                             full
DELETE registered-models/delete                             full
POST   registered-models/set-tag                            full
DELETE registered-models/delete-tag                         full
POST   registered-models/get-latest-versions                full read submit
GET    registered-models/get-latest-versions                full read submit
POST   registered-models/alias                              full
GET    registered-models/alias                              full read submit
DELETE registered-models/alias                              full
POST   model-versions/create                                full submit
GET    model-versions/get                                   full read submit
GET    model-versions/search                                full read submit
POST   model-versions/search                                full read submit
PATCH  model-versions/update                                full
DELETE model-versions/delete                                full
POST   model-versions/set-tag                               full
DELETE model-versions/delete-tag                            full
POST   model-versions/transition-stage                      full
GET    model-versions/get-download-uri                      full read submit

# Webhooks and workspaces: reads.
GET    workspaces                                           full read submit
POST   workspaces                                           full
GET    workspaces/<str:name>                                full read submit
PATCH  workspaces/<str:name>                                full
DELETE workspaces/<str:name>                                full
POST   webhooks                                             full
GET    webhooks                                             full read submit
GET    webhooks/<str:key>                                   full read submit
PATCH  webhooks/<str:key>                                   full
DELETE webhooks/<str:key>                                   full
POST   webhooks/<str:key>/test                              full
"""

# {dataset} is the one that the token names; {path} and {file} are files there, {folder} a folder with a file, {new} is
# free, {root} is the folder of the user's datasets.
WEBDAV = """
# Reads. What an address answers beside (a dataset that is still uploaded is not given out) is another matter.
GET      {dataset}/{path}                full read submit dataset
HEAD     {dataset}/{path}                full read submit dataset
PROPFIND {dataset}/{path}                full read submit dataset
PROPFIND {dataset}                       full read submit dataset
GET      .home/{path}                    full read submit
HEAD     .home/{path}                    full read submit
PROPFIND .home/{path}                    full read submit
PROPFIND {root}                          full read submit

# Uploads, also over a file that is there; folders, locks and properties belong to them.
PUT       {dataset}/{path}               full submit dataset
MKCOL     {dataset}/{path}               full submit dataset
PROPPATCH {dataset}/{path}               full submit dataset
LOCK      {dataset}/{path}               full submit dataset
UNLOCK    {dataset}/{path}               full submit dataset
PUT       .home/{path}                   full submit
MKCOL     .home/{path}                   full submit
PROPPATCH .home/{path}                   full submit
LOCK      .home/{path}                   full submit
UNLOCK    .home/{path}                   full submit

# Copies and moves: the source and the destination must be for the token, both.
COPY {dataset}/{path} {dataset}/{new}    full submit dataset
COPY {dataset}/{path} {dataset}/{file}   full submit dataset
COPY {dataset}/{path} .home/{new}        full submit
COPY .home/{path} {dataset}/{new}        full submit
COPY .home/{path} .home/{file}           full submit
MOVE {dataset}/{path} {dataset}/{new}    full submit dataset
MOVE {dataset}/{path} {dataset}/{file}   full submit dataset
MOVE {dataset}/{path} .home/{new}        full submit
MOVE .home/{path} {dataset}/{new}        full submit
MOVE .home/{path} .home/{file}           full submit

# Deletion, also of a folder that something else takes the place of. The files of its dataset are a token's to write,
# the dataset is not its to delete, nor to empty.
DELETE {dataset}/{path}                  full dataset
DELETE {dataset}/{folder}                full dataset
DELETE {dataset}                         full
DELETE .home/{path}                      full
DELETE .home/{folder}                    full
COPY {dataset}/{path} {dataset}/{folder} full dataset
COPY .home/{path} .home/{folder}         full
MOVE {dataset}/{path} {dataset}/{folder} full dataset
MOVE .home/{path} .home/{folder}         full
"""
