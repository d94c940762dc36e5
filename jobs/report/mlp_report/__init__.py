"""Report a training's progress to the platform. Standard library only, Python 3.8 or newer.

    from mlp_report import report
    for epoch in range(10):
        ...
        report(epoch=epoch, accuracy=0.93, loss=0.21, progress=100 * (epoch + 1) / 10)

Other names are accepted too, `report(loss=0.2, learning_rate=1e-3)`, and `values(step, name=number, …)` reports numbers
at a step of their own; such names are letters, digits and _.:/- and spaces. `progress(40)` reports the progress alone,
`progress(40, remaining=90)` with the seconds that are left; `artifact(path)` keeps a file or folder with the job's
output; at the end `finish()` or `fail("why")`, or the exit code.

`log_image("samples", array)`, `log_table`, `log_histogram`, `log_confusion_matrix`, `log_audio` and `log_text` keep
media at a step (by default the last reported epoch); the job's page shows them.

In Lightning and Keras a callback reports by itself: `Trainer(callbacks=[mlp_report.lightning.Report()])` and
`model.fit(..., callbacks=[mlp_report.keras.Report()])`. A Hugging Face `Trainer` reports without this package.

The platform puts this package on a job's path and sets MLP_API_URL, MLP_TOKEN, MLP_USER, MLP_JOB and MLP_ATTEMPT, which
say where to report. Run by hand, without MLP_TOKEN, it prints each report to stdout instead.

It never raises: reports go into a bounded queue, and a thread sends them in batches, twice a second. A script that
reports faster than the platform takes it waits while the queue is full. While the platform is unreachable the thread
retries with growing pauses and nothing waits. When the program exits, it sends the rest for at most MLP_REPORT_FLUSH_S
seconds (20). What could not be sent by then, or did not fit the queue, is in a file in the job's folder, which the
platform reads once the program has ended, also by a kill. Each kind of problem is one line on stderr, once.
"""

import atexit
import importlib
import os

from .media import Media
from .sending import Reporter

__all__ = [
    "Media", "Reporter", "artifact", "fail", "finish", "flush", "log_audio", "log_confusion_matrix", "log_histogram",
    "log_image", "log_table", "log_text", "progress", "report", "values",
]  # fmt: skip

_reporter = Reporter()
report, values, progress, artifact = _reporter.report, _reporter.values, _reporter.progress, _reporter.artifact
flush, finish, fail = _reporter.flush, _reporter.finish, _reporter.fail
_media = Media(_reporter)
log_image, log_audio, log_text, log_table = _media.log_image, _media.log_audio, _media.log_text, _media.log_table
log_histogram, log_confusion_matrix = _media.log_histogram, _media.log_confusion_matrix
atexit.register(_reporter.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)


def __getattr__(name):
    """Load the callbacks `mlp_report.lightning.Report` and `mlp_report.keras.Report` when they are used."""
    if name in ("keras", "lightning"):
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
