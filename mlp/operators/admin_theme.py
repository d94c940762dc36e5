"""The admin's appearance: django-unfold's settings, read by mlp.settings. Dotted names in quotes are callables."""

from __future__ import annotations

from django.templatetags.static import static
from django.utils.translation import gettext_lazy as _

# The sidebar's groups of models. A model that is not registered is left out; one that is not named here is listed at
# the end (mlp.operators.admin.navigation).
GROUPS = (
    (
        _("Work"),
        (
            *("jobs.job", "jobs.project", "jobs.view", "jobs.snapshot", "jobs.metrics", "jobs.failurerule"),
            *("jobs.trace", "jobs.evaluationdataset", "jobs.scorer"),
            *("datasets.dataset", "models_app.model", "apps.application"),
        ),
    ),
    (
        _("Automation"),
        (
            "automation.sweep",
            "automation.trial",
            "automation.pipeline",
            "automation.pipelinerun",
            "automation.step",
            "automation.schedule",
            "automation.firing",
        ),
    ),
    (
        _("Model registry"),
        (
            *("models_app.registeredmodel", "models_app.modelversion", "models_app.alias"),
            *("models_app.registrywebhook", "models_app.registrydelivery", "apps.rollout", "apps.shadow"),
            "apps.appkey",
        ),
    ),
    (
        _("Log analysis"),
        (
            *("aiops.trainingrun", "aiops.modelversion", "aiops.logline", "aiops.template"),
            *("aiops.savedsearch", "aiops.alertrule", "aiops.alert", "aiops.feedback", "aiops.watchedworkload"),
        ),
    ),
    (
        _("Resources"),
        (
            *("resources.tenant", "accounts.membership", "resources.userlimit"),
            *("resources.resourcerequest", "resources.usagesample", "resources.gpuproduct", "datasets.bucket"),
        ),
    ),
    (_("People"), ("accounts.user", "accounts.token", "accounts.visit", "accounts.share")),
    (_("Notifications"), ("accounts.notice", "accounts.delivery")),
    (_("Record"), ("kernel.statechange",)),
)

UNFOLD: dict = {
    "SITE_TITLE": _("ML platform"),
    "SITE_HEADER": _("ML platform"),
    "SITE_SUBHEADER": _("Administration"),
    "SITE_SYMBOL": "neurology",
    "SITE_URL": "/",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("mlp/admin/icon.svg")},
    ],
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "SHOW_BACK_BUTTON": False,
    "LANGUAGES": {"action": "/set_language"},
    "BORDER_RADIUS": "8px",
    "STYLES": [lambda request: static("mlp/admin/admin.css")],
    "SCRIPTS": [lambda request: static("mlp/admin/admin.js")],
    "DASHBOARD_CALLBACK": "mlp.operators.admin.dashboard",
    "SIDEBAR": {"command_search": True, "navigation": "mlp.operators.admin.navigation"},
    "COMMAND": {"search_callback": "mlp.operators.admin.search"},
    "ACCOUNT": {"navigation": "mlp.operators.admin.account_links"},
    "COLORS": {
        "primary": {
            "50": "oklch(97% .014 254.6)",
            "100": "oklch(93.2% .032 255.6)",
            "200": "oklch(88.2% .059 254.1)",
            "300": "oklch(80.9% .105 251.8)",
            "400": "oklch(70.7% .165 254.6)",
            "500": "oklch(62.3% .214 259.8)",
            "600": "oklch(54.6% .245 262.9)",
            "700": "oklch(48.8% .243 264.4)",
            "800": "oklch(42.4% .199 265.6)",
            "900": "oklch(37.9% .146 265.5)",
            "950": "oklch(28.2% .091 267.9)",
        },
    },
}
