"""Which scopes may make which call of REST, by the promises of docs/tokens.md: a line for each, written by hand.

A new call gets its line here, judged by what the documentation says of the scopes; test_scopes.py holds the code to it.
`-` is no named token. `submit` and `dataset` are for the token's own user, and that dataset, only.
"""

from __future__ import annotations

REST = """
# Log anomaly detection: in the table only as reads.
GET    /aiops/alert_rules                                                         full read submit
POST   /aiops/alert_rules                                                         full
GET    /aiops/alert_rules/{id}                                                    full read submit
PUT    /aiops/alert_rules/{id}                                                    full
DELETE /aiops/alert_rules/{id}                                                    full
PUT    /aiops/alert_rules/{id}:mute                                               full
GET    /aiops/alerts                                                              full read submit
GET    /aiops/feedback                                                            full read submit
POST   /aiops/feedback                                                            full
GET    /aiops/gpu_info                                                            full read submit
GET    /aiops/logs                                                                full read submit
POST   /aiops/logs                                                                full
GET    /aiops/logs:export                                                         full read submit
PUT    /aiops/model/current_status                                                full
PUT    /aiops/model/statistics                                                    full
GET    /aiops/model/status                                                        full read submit
POST   /aiops/model/train                                                         full
GET    /aiops/model/training_parameters                                           full read submit
GET    /aiops/searches                                                            full read submit
POST   /aiops/searches                                                            full
GET    /aiops/searches/{id}                                                       full read submit
PUT    /aiops/searches/{id}                                                       full
DELETE /aiops/searches/{id}                                                       full
GET    /aiops/templates                                                           full read submit
GET    /aiops/tenant_models                                                       full read submit
GET    /aiops/tenant_models/{tenant}                                              full read submit
PUT    /aiops/tenant_models/{tenant}:cancel                                       full
PUT    /aiops/tenant_models/{tenant}:train                                        full
GET    /aiops/tenant_models/{tenant}/versions                                     full read submit
PUT    /aiops/tenant_models/{tenant}/versions/{version}:serve                     full
GET    /aiops/trainings                                                           full read submit
GET    /aiops/versions                                                            full read submit
PUT    /aiops/versions/{version}:serve                                            full
GET    /aiops/rates                                                               full read submit
GET    /aiops/rate_anomalies                                                      full read submit
GET    /aiops/session_anomalies                                                   full read submit
GET    /aiops/suppressions                                                        full read submit
POST   /aiops/suppressions                                                        full
GET    /aiops/suppressions/{id}                                                   full read submit
DELETE /aiops/suppressions/{id}                                                   full
GET    /aiops/watched                                                             full read submit
POST   /aiops/watched                                                             full
GET    /aiops/watched/{id}                                                        full read submit
DELETE /aiops/watched/{id}                                                        full
GET    /aiops/workload_aggregation/{cluster}                                      full read submit

# The platform's own. Whose a token is, it answers for full tokens only.
GET    /auth                                                                      full
PUT    /resource_request:cancel                                                   full
PUT    /resource_request:confirm                                                  full
PUT    /resource_request:try                                                      full

# Tenants: reads; who may change them at all is another matter (docs/tenants.md).
GET    /gpu_types                                                                 full read submit
GET    /tenants                                                                   full read submit
POST   /tenants                                                                   full
GET    /tenants/{tenant}                                                          full read submit
PUT    /tenants/{tenant}                                                          full
DELETE /tenants/{tenant}                                                          full
GET    /tenants/{tenant}/limits                                                   full read submit
GET    /tenants/{tenant}/limits/{name}                                            full read submit
PUT    /tenants/{tenant}/limits/{name}                                            full
DELETE /tenants/{tenant}/limits/{name}                                            full
GET    /tenants/{tenant}/members                                                  full read submit
GET    /tenants/{tenant}/members/{name}                                           full read submit
PUT    /tenants/{tenant}/members/{name}                                           full
DELETE /tenants/{tenant}/members/{name}                                           full
GET    /tenants/{tenant}/rollouts                                                 full read submit
PUT    /tenants/{tenant}/rollouts:approve                                         full
GET    /tenants/{tenant}/usage                                                    full read submit
GET    /tenants/{tenant}/work                                                     full read submit
PUT    /tenants/{tenant}/work:end                                                 full

# The account, its tokens, its service accounts and the keys of its applications: no named token.
POST   /program_logins                                                            -
POST   /program_logins/{code}                                                     -
GET    /users                                                                     full read submit
POST   /users                                                                     full
GET    /users/{user}                                                              full read submit
PUT    /users/{user}                                                              -
GET    /users/{user}/service_accounts                                             -
POST   /users/{user}/service_accounts                                             -
GET    /users/{user}/service_accounts/{name}                                      -
DELETE /users/{user}/service_accounts/{name}                                      -
GET    /users/{user}/service_accounts/{name}/tokens                               -
POST   /users/{user}/service_accounts/{name}/tokens                               -
DELETE /users/{user}/service_accounts/{name}/tokens/{token}                       -
GET    /users/{user}/token                                                        -
PUT    /users/{user}/token:rotate                                                 -
GET    /users/{user}/tokens                                                       -
POST   /users/{user}/tokens                                                       -
DELETE /users/{user}/tokens/{name}                                                -
GET    /users/{user}/apps/{name}/keys                                             -
POST   /users/{user}/apps/{name}/keys                                             -
GET    /users/{user}/apps/{name}/keys/{key}                                       -
PUT    /users/{user}/apps/{name}/keys/{key}                                       -
DELETE /users/{user}/apps/{name}/keys/{key}                                       -

# Sharing, and the user's tenants: not submission.
GET    /users/{user}/shared_with_me                                               full read submit
GET    /users/{user}/shares                                                       full read submit
POST   /users/{user}/shares                                                       full
GET    /users/{user}/shares/{share}                                               full read submit
DELETE /users/{user}/shares/{share}                                               full
GET    /users/{user}/tenants                                                      full read submit
PUT    /users/{user}/tenants/{tenant}:default                                     full

# Datasets: uploads. A token of one dataset reports on it, and deletes nothing of it.
GET    /users/{user}/buckets                                                      full read submit
GET    /users/{user}/datasets                                                     full read submit
POST   /users/{user}/datasets                                                     full submit
GET    /users/{user}/datasets/{name}                                              full read submit dataset
DELETE /users/{user}/datasets/{name}                                              full
PUT    /users/{user}/datasets/{name}:edit                                         full submit
PUT    /users/{user}/datasets/{name}:refresh                                      full submit
GET    /users/{user}/datasets/{name}/files                                        full read submit
PUT    /users/{user}/datasets/{name}/notes                                        full submit
POST   /users/{user}/datasets/{name}/uploads                                      full submit
POST   /users/{user}/datasets/{name}/uploads/parts                                full submit
GET    /users/{user}/datasets/{name}/uses                                         full read submit
GET    /users/{user}/datasets/{name}/versions                                     full read submit
POST   /users/{user}/datasets/{name}/versions                                     full submit
DELETE /users/{user}/datasets/{name}/versions/{number}                            full
GET    /users/{user}/exports                                                      full read submit
POST   /users/{user}/exports                                                      full submit
GET    /users/{user}/exports/{number}                                             full read submit
PUT    /users/{user}/exports/{number}:cancel                                      full submit
PUT    /users/{user}/datasets/{name}:heartbeat                                    full submit dataset

# Environments of packages: what is removed is installed again, but is removed.
GET    /users/{user}/environments                                                 full read submit
GET    /users/{user}/environments/{digest}                                        full read submit
DELETE /users/{user}/environments/{digest}                                        full
GET    /users/{user}/named_environments                                           full read submit
POST   /users/{user}/named_environments                                           full submit
GET    /users/{user}/named_environments/{reference}                               full read submit
DELETE /users/{user}/named_environments/{reference}                               full
PUT    /users/{user}/named_environments/{reference}:retry                         full submit
# Jobs: submitted, reported, cancelled, described. The trash is deletion, and what is there is not for `submit`
# (docs/retention.md).
POST   /users/{user}/job_metrics/{name}                                           full submit
PUT    /users/{user}/job_metrics/{name}:begin                                     full submit
PUT    /users/{user}/job_metrics/{name}:delete                                    full
PUT    /users/{user}/job_metrics/{name}:finish                                    full submit
GET    /users/{user}/jobs                                                         full read submit
POST   /users/{user}/checkouts                                                    full submit
POST   /users/{user}/jobs                                                         full submit
GET    /users/{user}/jobs/{name}                                                  full read submit
DELETE /users/{user}/jobs/{name}                                                  full
GET    /users/{user}/jobs/{name}/artifacts                                        full read submit
GET    /users/{user}/jobs/{name}/artifacts/{path}                                 full read submit
GET    /users/{user}/jobs/{name}/code                                             full read submit
GET    /users/{user}/jobs/{name}/code/archive                                     full read submit
GET    /users/{user}/jobs/{name}/code/diff                                        full read submit
GET    /users/{user}/jobs/{name}/code/files/{path}                                full read submit
GET    /users/{user}/jobs/{name}/diagnosis                                        full read submit
GET    /users/{user}/jobs/{name}/log                                              full read submit
GET    /users/{user}/jobs/{name}/log/differences                                  full read submit
GET    /users/{user}/jobs/{name}/log/usual_way                                    full read submit
GET    /users/{user}/jobs/{name}/log/lines                                        full read submit
GET    /users/{user}/jobs/{name}/log/search                                       full read submit
GET    /users/{user}/jobs/{name}/media                                            full read submit
GET    /users/{user}/jobs/{name}/metrics                                          full read submit
GET    /users/{user}/jobs/{name}/points                                           full read submit
GET    /users/{user}/jobs/{name}/processes                                        full read submit
GET    /users/{user}/jobs/{name}/queue                                            full read submit
GET    /users/{user}/jobs/{name}/series                                           full read submit
GET    /users/{user}/jobs/{name}/usage                                            full read submit
GET    /users/{user}/jobs/{name}/values                                           full read submit
POST   /users/{user}/jobs/{name}/values                                           full submit
PUT    /users/{user}/jobs/{name}:cancel                                           full submit
PUT    /users/{user}/jobs/{name}:edit                                             full submit
PUT    /users/{user}/jobs/{name}:heartbeat                                        full submit
POST   /users/{user}/jobs/{name}:rerun                                            full submit
PUT    /users/{user}/jobs/{name}:restore                                          full
POST   /users/{user}/jobs/{name}:trainer                                          full submit
PUT    /users/{user}/jobs/{name}:trash                                            full

# Runs and projects, as jobs.
GET    /users/{user}/projects                                                     full read submit
POST   /users/{user}/projects                                                     full submit
GET    /users/{user}/projects/{id}                                                full read submit
PUT    /users/{user}/projects/{id}                                                full submit
DELETE /users/{user}/projects/{id}                                                full
PUT    /users/{user}/projects/{id}:restore                                        full
GET    /users/{user}/runs                                                         full read submit
PUT    /users/{user}/runs:cancel                                                  full submit
PUT    /users/{user}/runs:delete                                                  full
PUT    /users/{user}/runs:mark                                                    full submit
PUT    /users/{user}/runs:move                                                    full submit
PUT    /users/{user}/runs:restore                                                 full
PUT    /users/{user}/runs:tag                                                     full submit
PUT    /users/{user}/runs:trash                                                   full

# What submits jobs by itself: submitted, changed, paused, cancelled; not deleted.
GET    /users/{user}/pipelines                                                    full read submit
POST   /users/{user}/pipelines                                                    full submit
GET    /users/{user}/pipelines/{name}                                             full read submit
PUT    /users/{user}/pipelines/{name}                                             full submit
DELETE /users/{user}/pipelines/{name}                                             full
PUT    /users/{user}/pipelines/{name}:edit                                        full submit
GET    /users/{user}/pipelines/{name}/runs                                        full read submit
POST   /users/{user}/pipelines/{name}/runs                                        full submit
GET    /users/{user}/pipelines/{name}/runs/{number}                               full read submit
DELETE /users/{user}/pipelines/{name}/runs/{number}                               full
PUT    /users/{user}/pipelines/{name}/runs/{number}/steps/{step}:approve          full submit
PUT    /users/{user}/pipelines/{name}/runs/{number}/steps/{step}:reject           full submit
PUT    /users/{user}/pipelines/{name}/runs/{number}:cancel                        full submit
GET    /users/{user}/schedules                                                    full read submit
POST   /users/{user}/schedules                                                    full submit
GET    /users/{user}/schedules/{name}                                             full read submit
PUT    /users/{user}/schedules/{name}                                             full submit
DELETE /users/{user}/schedules/{name}                                             full
GET    /users/{user}/schedules/{name}/firings                                     full read submit
PUT    /users/{user}/schedules/{name}:edit                                        full submit
PUT    /users/{user}/schedules/{name}:pause                                       full submit
PUT    /users/{user}/schedules/{name}:resume                                      full submit
PUT    /users/{user}/schedules/{name}:run                                         full submit
POST   /users/{user}/schedules:preview                                            full submit
GET    /users/{user}/sweeps                                                       full read submit
POST   /users/{user}/sweeps                                                       full submit
GET    /users/{user}/sweeps/{name}                                                full read submit
DELETE /users/{user}/sweeps/{name}                                                full
GET    /users/{user}/sweeps/{name}/trials                                         full read submit
POST   /users/{user}/sweeps/{name}/trials                                         full submit
PUT    /users/{user}/sweeps/{name}:cancel                                         full submit
PUT    /users/{user}/sweeps/{name}:edit                                           full submit
PUT    /users/{user}/sweeps/{name}:extend                                         full submit
PUT    /users/{user}/sweeps/{name}:pause                                          full submit
PUT    /users/{user}/sweeps/{name}:resume                                         full submit

# The trash: listed, which is a read, and nothing else.
GET    /users/{user}/trash                                                        full read submit
PUT    /users/{user}/trash:delete                                                 full
PUT    /users/{user}/trash:restore                                                full

# Traces, as runs.
GET    /users/{user}/traces                                                       full read submit
GET    /users/{user}/traces/{trace}                                               full read submit
DELETE /users/{user}/traces/{trace}                                               full
GET    /users/{user}/traces/{trace}/spans                                         full read submit
GET    /users/{user}/traces/{trace}/feedback                                      full read submit
POST   /users/{user}/traces/{trace}/feedback                                      full submit
DELETE /users/{user}/traces/{trace}/feedback/{key}                                full

# Views, comparisons, models, the registry and applications: not submission.
GET    /users/{user}/workspaces                                                   full read submit
POST   /users/{user}/workspaces                                                   full
GET    /users/{user}/workspaces/{name}                                            full read submit
DELETE /users/{user}/workspaces/{name}                                            full
GET    /users/{user}/workspaces/{name}/guests                                     full read submit
PUT    /users/{user}/workspaces/{name}/guests/{guest}                             full
DELETE /users/{user}/workspaces/{name}/guests/{guest}                             full
GET    /users/{user}/workspace_invitations                                        full read submit
DELETE /users/{user}/workspace_invitations/{owner}/{name}                         full
PUT    /users/{user}/workspace_invitations/{owner}/{name}:accept                  full
GET    /users/{user}/workspaces/{name}/log                                        full read submit
GET    /users/{user}/workspaces/{name}/log/lines                                  full read submit
GET    /users/{user}/workspaces/{name}/log/search                                 full read submit
PUT    /users/{user}/workspaces/{name}:edit                                       full
PUT    /users/{user}/workspaces/{name}:keep                                       full
PUT    /users/{user}/workspaces/{name}:start                                      full
PUT    /users/{user}/workspaces/{name}:stop                                       full
GET    /users/{user}/apps                                                         full read submit
POST   /users/{user}/apps                                                         full
GET    /users/{user}/apps/{name}                                                  full read submit
DELETE /users/{user}/apps/{name}                                                  full
GET    /users/{user}/apps/{name}/log                                              full read submit
GET    /users/{user}/apps/{name}/log/lines                                        full read submit
GET    /users/{user}/apps/{name}/log/search                                       full read submit
GET    /users/{user}/apps/{name}/queue                                            full read submit
PUT    /users/{user}/apps/{name}/access                                           full
PUT    /users/{user}/apps/{name}/rollout                                          full
DELETE /users/{user}/apps/{name}/rollout                                          full
GET    /users/{user}/apps/{name}/runs                                             full read submit
GET    /users/{user}/apps/{name}/uptime                                           full read submit
PUT    /users/{user}/apps/{name}:edit                                             full
PUT    /users/{user}/apps/{name}:restart                                          full
GET    /users/{user}/apps/{name}/recording                                        full read submit
PUT    /users/{user}/apps/{name}/recording                                        full
DELETE /users/{user}/apps/{name}/recording                                        full
GET    /users/{user}/apps/{name}/drift                                            full read submit
PUT    /users/{user}/apps/{name}/drift                                            full
DELETE /users/{user}/apps/{name}/drift                                            full
GET    /users/{user}/apps/{name}/drift/windows                                    full read submit
GET    /users/{user}/apps/{name}/drift/windows/{number}                           full read submit
GET    /users/{user}/apps/{name}/records                                          full read submit
DELETE /users/{user}/apps/{name}/records                                          full
GET    /users/{user}/apps/{name}/records/{number}                                 full read submit
GET    /users/{user}/apps/{name}/records:export                                   full read submit
POST   /users/{user}/apps/{name}/records:dataset                                  full submit
POST   /users/{user}/apps/{name}:score                                            full submit
POST   /users/{user}/models/{name}:score                                          full submit
PUT    /users/{user}/apps/{name}/replicas                                         full
PUT    /users/{user}/apps/{name}/canary                                           full
DELETE /users/{user}/apps/{name}/canary                                           full
PUT    /users/{user}/apps/{name}/rollout:share                                    full
GET    /users/{user}/apps/{name}/shadow                                           full read submit
PUT    /users/{user}/apps/{name}/shadow                                           full
DELETE /users/{user}/apps/{name}/shadow                                           full
PUT    /users/{user}/apps/{name}/shadow:promote                                   full
GET    /users/{user}/apps/{name}/shadow/pairs                                     full read submit
PUT    /users/{user}/apps/{name}:start                                            full
PUT    /users/{user}/apps/{name}:stop                                             full
GET    /users/{user}/comparisons                                                  full read submit
POST   /users/{user}/comparisons                                                  full
GET    /users/{user}/comparisons/{name}                                           full read submit
PUT    /users/{user}/comparisons/{name}                                           full
DELETE /users/{user}/comparisons/{name}                                           full
GET    /users/{user}/models                                                       full read submit
POST   /users/{user}/models                                                       full
GET    /users/{user}/models/{name}                                                full read submit
DELETE /users/{user}/models/{name}                                                full
GET    /users/{user}/models/{name}/address                                        full read submit
GET    /users/{user}/models/{name}/bucket                                         full read submit
GET    /users/{user}/models/{name}/download                                       full read submit
GET    /users/{user}/models/{name}/files                                          full read submit
PUT    /users/{user}/models/{name}:edit                                           full
PUT    /users/{user}/models/{name}/notes                                          full
GET    /users/{user}/registry                                                     full read submit
POST   /users/{user}/registry                                                     full submit
GET    /users/{user}/registry-webhooks                                            full read submit
POST   /users/{user}/registry-webhooks                                            full
GET    /users/{user}/registry-webhooks/{key}                                      full read submit
PUT    /users/{user}/registry-webhooks/{key}                                      full
DELETE /users/{user}/registry-webhooks/{key}                                      full
GET    /users/{user}/registry-webhooks/{key}/deliveries                           full read submit
PUT    /users/{user}/registry-webhooks/{key}/deliveries/{delivery}                full
POST   /users/{user}/registry-webhooks/{key}/test                                 full
GET    /users/{user}/registry/{name}                                              full read submit
PUT    /users/{user}/registry/{name}                                              full
DELETE /users/{user}/registry/{name}                                              full
GET    /users/{user}/registry/{name}/aliases/{alias}                              full read submit
PUT    /users/{user}/registry/{name}/aliases/{alias}                              full
DELETE /users/{user}/registry/{name}/aliases/{alias}                              full
GET    /users/{user}/registry/{name}/versions                                     full read submit
POST   /users/{user}/registry/{name}/versions                                     full submit
GET    /users/{user}/registry/{name}/versions/{number}                            full read submit
PUT    /users/{user}/registry/{name}/versions/{number}                            full
DELETE /users/{user}/registry/{name}/versions/{number}                            full
GET    /users/{user}/views                                                        full read submit
POST   /users/{user}/views                                                        full
DELETE /users/{user}/views/{id}                                                   full
"""
