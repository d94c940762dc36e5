"""The paths of the APP-manager below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api, approval_api, key_api
from .batch import api as scoring_api
from .drift import api as drift_api
from .records import api as records_api
from .shadows import api as shadows_api

APP = "users/<seg:user>/apps/<seg:name>"

urlpatterns = [
    path("users/<seg:user>/apps", api.AppList.as_view()),
    path(APP, api.AppDetail.as_view()),
    path(f"{APP}:edit", api.AppEdit.as_view()),
    path(f"{APP}:restart", api.AppRestart.as_view()),
    path(f"{APP}:stop", api.AppStop.as_view()),
    path(f"{APP}:start", api.AppStart.as_view()),
    path(f"{APP}/runs", api.AppRuns.as_view()),
    path(f"{APP}/uptime", api.AppUptime.as_view()),
    path(f"{APP}/queue", api.AppQueue.as_view()),
    path(f"{APP}/access", key_api.AppAccess.as_view()),
    path(f"{APP}/keys", key_api.AppKeys.as_view()),
    path(f"{APP}/keys/<seg:key>", key_api.AppKeyDetail.as_view()),
    path(f"{APP}:score", scoring_api.AppScore.as_view()),
    path("users/<seg:user>/models/<seg:name>:score", scoring_api.ModelScore.as_view()),
    path(f"{APP}/recording", records_api.AppRecording.as_view()),
    path(f"{APP}/records", records_api.AppRecords.as_view()),
    path(f"{APP}/records:dataset", records_api.AppRecordsDataset.as_view()),
    path(f"{APP}/records:export", records_api.AppRecordsExport.as_view()),
    path(f"{APP}/records/<seg:number>", records_api.AppRecord.as_view()),
    path(f"{APP}/drift", drift_api.AppDrift.as_view()),
    path(f"{APP}/drift/windows", drift_api.AppDriftWindows.as_view()),
    path(f"{APP}/drift/windows/<seg:number>", drift_api.AppDriftWindow.as_view()),
    path(f"{APP}/replicas", api.AppReplicas.as_view()),
    path(f"{APP}/canary", api.AppCanary.as_view()),
    path(f"{APP}/shadow", shadows_api.AppShadow.as_view()),
    path(f"{APP}/shadow:promote", shadows_api.AppShadowPromote.as_view()),
    path(f"{APP}/shadow/pairs", shadows_api.AppShadowPairs.as_view()),
    path(f"{APP}/rollout:share", api.AppShare.as_view()),
    path(f"{APP}/rollout", api.AppRollout.as_view()),
    path("tenants/<seg:tenant>/rollouts", approval_api.ProposalList.as_view()),
    path("tenants/<seg:tenant>/rollouts:approve", approval_api.ProposalApprove.as_view()),
    path(f"{APP}/log", api.AppLog.as_view()),
    path(f"{APP}/log/lines", api.AppLogLines.as_view()),
    path(f"{APP}/log/search", api.AppLogSearch.as_view()),
]
