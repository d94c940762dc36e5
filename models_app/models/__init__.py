"""The rows of the Model-manager: models, the registry, webhooks, and what was imported from elsewhere."""

from .imported import Imported
from .manifest import ModelManifest
from .model import Model, State
from .registry import Alias, ModelVersion, RegisteredModel, Stage, Status
from .webhook import RegistryDelivery, RegistryWebhook

__all__ = [
    "Alias",
    "Imported",
    "Model",
    "ModelManifest",
    "ModelVersion",
    "RegisteredModel",
    "RegistryDelivery",
    "RegistryWebhook",
    "Stage",
    "State",
    "Status",
]  # fmt: skip
