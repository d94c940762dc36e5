"""The Data-manager's paths below /api/v1."""

from __future__ import annotations

from django.urls import path

from . import api
from .buckets import api as buckets
from .exports import api as exports

urlpatterns = [
    path("users/<seg:user>/buckets", api.BucketList.as_view()),
    path("users/<seg:user>/datasets", api.DatasetList.as_view()),
    path("users/<seg:user>/datasets/<seg:name>", api.DatasetDetail.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:heartbeat", api.DatasetHeartbeat.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:edit", api.DatasetEdit.as_view()),
    path("users/<seg:user>/datasets/<seg:name>:refresh", api.DatasetRefresh.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/files", api.DatasetFiles.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/notes", api.DatasetNotes.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/uploads", buckets.DatasetUploads.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/uploads/parts", buckets.DatasetUploadParts.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/uses", api.DatasetUses.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/versions", api.DatasetVersions.as_view()),
    path("users/<seg:user>/datasets/<seg:name>/versions/<int:number>", api.DatasetVersion.as_view()),
    path("users/<seg:user>/exports", exports.ExportList.as_view()),
    path("users/<seg:user>/exports/<int:number>", exports.ExportDetail.as_view()),
    path("users/<seg:user>/exports/<int:number>:cancel", exports.ExportCancel.as_view()),
]
