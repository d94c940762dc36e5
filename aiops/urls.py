"""The addresses of AIOps below /api/v1."""

from __future__ import annotations

from django.urls import path

from .web import alerts_api, export, logs_api, own_models_api, owners_api, rates_api, sessions_api, suppressions_api
from .web import training_api as training

urlpatterns = [
    path("aiops/logs", logs_api.Logs.as_view()),
    path("aiops/feedback", owners_api.FeedbackList.as_view()),
    path("aiops/templates", owners_api.Templates.as_view()),
    path("aiops/rates", rates_api.Rates.as_view()),
    path("aiops/rate_anomalies", rates_api.RateAnomalies.as_view()),
    path("aiops/session_anomalies", sessions_api.SessionAnomalies.as_view()),
    path("aiops/suppressions", suppressions_api.Suppressions.as_view()),
    path("aiops/suppressions/<seg:id>", suppressions_api.SuppressionDetail.as_view()),
    path("aiops/watched", owners_api.Watched.as_view()),
    path("aiops/watched/<seg:id>", owners_api.WatchedDetail.as_view()),
    path("aiops/searches", alerts_api.SavedSearches.as_view()),
    path("aiops/searches/<seg:id>", alerts_api.SavedSearchDetail.as_view()),
    path("aiops/alert_rules", alerts_api.AlertRules.as_view()),
    path("aiops/alert_rules/<seg:id>", alerts_api.AlertRuleDetail.as_view()),
    path("aiops/alert_rules/<seg:id>:mute", alerts_api.AlertRuleMute.as_view()),
    path("aiops/alerts", alerts_api.Alerts.as_view()),
    path("aiops/logs:export", export.Export.as_view()),
    path("aiops/model/train", training.Train.as_view()),
    path("aiops/model/current_status", training.CurrentStatus.as_view()),
    path("aiops/model/statistics", training.CurrentStatistics.as_view()),
    path("aiops/model/status", training.Status.as_view()),
    path("aiops/model/training_parameters", training.Parameters.as_view()),
    path("aiops/workload_aggregation/<seg:cluster>", training.Aggregation.as_view()),
    path("aiops/gpu_info", training.GpuInfo.as_view()),
    path("aiops/trainings", training.Trainings.as_view()),
    path("aiops/tenant_models", own_models_api.OwnModels.as_view()),
    path("aiops/tenant_models/<seg:tenant>", own_models_api.OwnModelDetail.as_view()),
    path("aiops/tenant_models/<seg:tenant>:cancel", own_models_api.OwnModelCancel.as_view()),
    path("aiops/tenant_models/<seg:tenant>/versions", own_models_api.OwnModelVersions.as_view()),
    path("aiops/tenant_models/<seg:tenant>/versions/<seg:version>:serve", own_models_api.OwnModelServe.as_view()),
    path("aiops/tenant_models/<seg:tenant>:train", own_models_api.OwnModelTrain.as_view()),
    path("aiops/versions", training.Versions.as_view()),
    path("aiops/versions/<seg:version>:serve", training.ServeVersion.as_view()),
]
