"""The Data-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api

urlpatterns = [
    path("users/<seg:user>/buckets", api.BucketList.as_view()),
    path("users/<seg:user>/datasets", api.DatasetList.as_view()),
    path("users/<seg:user>/datasets/<seg:name>", api.DatasetDetail.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:heartbeat", api.DatasetHeartbeat.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:edit", api.DatasetEdit.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:refresh", api.DatasetRefresh.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/files", api.DatasetFiles.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/notes", api.DatasetNotes.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/uses", api.DatasetUses.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/versions", api.DatasetVersions.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/versions/<int:number>", api.DatasetVersion.as_view()),
]
