"""The rows of the Job-manager and the Metrics-manager, a file for each subject."""

from .artifacts import ArtifactSpace, LoggedModel, ModelUse
from .code import Blob, Capture, Snapshot
from .comparison import ComparedRun, Comparison
from .doctor import Action, Diagnosis, FailureRule, Where
from .evaluation import EvaluationDataset, EvaluationRecord, Scorer, ScorerVersion
from .inputs import RunInput
from .job import ENDED, SHOWN_ONLY, Job, State, new_nonce
from .metrics import Block, Metrics, Value
from .named_environment import EnvironmentVersion, NamedEnvironment, VersionState
from .project import Project, View
from .reporting import ProgressSource
from .submission import Runtime
from .summary import RunMetric, RunParam, Source
from .traces import Assessment, Span, Trace, TraceLink
from .tracked import COLOURS, Origin

__all__ = [
    "COLOURS", "ENDED", "SHOWN_ONLY", "Action", "ArtifactSpace", "Assessment", "Blob", "Block", "Capture",
    "ComparedRun", "Comparison", "Diagnosis", "EnvironmentVersion", "EvaluationDataset", "EvaluationRecord",
    "FailureRule", "Job", "LoggedModel", "Metrics", "ModelUse", "NamedEnvironment", "Origin", "ProgressSource",
    "Project", "RunInput", "RunMetric", "RunParam", "Runtime", "Scorer", "ScorerVersion", "Snapshot", "Source",
    "Span", "State", "Trace", "TraceLink", "Value", "VersionState", "View", "Where", "new_nonce",
]  # fmt: skip
