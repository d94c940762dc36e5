"""The settings of Django REST framework and drf-spectacular, used by settings.py."""

from __future__ import annotations

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.auth.BearerAuthentication",
        "jobs.auth.JobTokenAuthentication",
        "accounts.auth.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["kernel.rest.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["kernel.rest.PlainJSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "kernel.rest.AlwaysJSON",
    "EXCEPTION_HANDLER": "kernel.errors.exception_handler",
    "DEFAULT_SCHEMA_CLASS": "kernel.schema.ContractSchema",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
REFERENCE = {
    "TITLE": "ML platform",
    "DESCRIPTION": 'The platform\'s REST interface. Refusals return `403 {"msg"}`, platform errors `503 {"msg"}`.',
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "kernel.schema_links.add_links",
    ],
    "ENFORCE_NON_BLANK_FIELDS": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": {
        "ReadyStateEnum": "datasets.models.State",
        "DiffLineKindEnum": ["same", "old", "new", "skip"],
        "SharedKindEnum": "accounts.sharing.serializers.SHARED_KINDS",
        "DriftVerdictEnum": "apps.models.DriftWindow.Verdict",
        "RecordKeptEnum": ["all", "cut", "withheld", "binary", "none"],
        "MediaKindEnum": "tracking.media.index.KINDS",
        "TrashedKindEnum": ["job", "dataset", "model", "application", "workspace"],
        "ShareRightEnum": ["read", "clone"],
        "RegistryEventEnum": "models_app.registry.events.EVENTS",
        "WorkKindEnum": "resources.serializers.WORK",
        "TenantRoleEnum": "accounts.models.Role",
        "AlertKindEnum": "aiops.judging.rules.Kind",
        "RateKindEnum": "aiops.judging.rate_alerts.Kind",
        "AlertDirectionEnum": "aiops.judging.rules.Direction",
        "NetworkEnum": "resources.models.Network",
        "ExportStateEnum": "datasets.models.ExportState",
        "BucketAccessEnum": "datasets.models.Bucket.Access",
        "JobStateEnum": "jobs.models.State",
        "WorkspaceStateEnum": "workspaces.models.State",
        "EnvironmentStateEnum": "jobs.models.VersionState",
        "RuntimeEnum": "jobs.models.Runtime",
        "GivenRuntimeEnum": ["python", "torch", "tf"],
        "JobOutcomeEnum": "kernel.outcomes.Outcome",
        "RunStateEnum": ["queued", "starting", "running", "finished", "failed", "cancelled", "pruned", "deleting"],
        "AnyNetworkEnum": ["", "open", "platform", "none"],
    },
}
SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "username and password: the token call alone"},
}


def spectacular(session_cookie: str) -> dict:
    """Return the settings of the API reference, which names the cookie of a session."""
    session = {"type": "apiKey", "in": "cookie", "name": session_cookie}
    return REFERENCE | {"APPEND_COMPONENTS": {"securitySchemes": SECURITY_SCHEMES | {"session": session}}}
