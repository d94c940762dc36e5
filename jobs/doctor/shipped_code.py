"""The shipped rules for what goes wrong in the script itself, and for ends without an exception."""

from __future__ import annotations

from django.utils.translation import gettext_noop as noop

from jobs.models import Action

from .shipped import FILES, NETWORK, PLATFORM, RESOURCES, L, R, Shipped, X
from .shipped_packages import PACKAGES

GPU = (
    Shipped(
        "no_gpu",
        X,
        r"Torch not compiled with CUDA enabled|Found no NVIDIA driver|No CUDA GPUs are available|"
        r"torch\.cuda\.is_available\(\) is False|no CUDA-capable device|libcuda\.so\.1: cannot open",
        noop("There is no GPU"),
        noop(
            "The script uses a GPU, but the job has requested %(gpu)s. Request one, or choose the device by "
            "torch.cuda.is_available()."
        ),
        "RuntimeError: No CUDA GPUs are available", Action.FORM,
    ),
    Shipped(
        "cuda_version",
        X,
        r"driver on your system is too old|driver version is insufficient|no kernel image is available|"
        r"CUDA error: invalid device function|PTX was compiled with an unsupported",
        noop("CUDA does not match the GPU or its driver"),
        noop(
            "The installed framework was built for another CUDA version or GPU than this machine has. An "
            "administrator has to install a build that matches its driver."
        ),
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    Shipped(
        "device_assert", X, r"device-side assert triggered",
        noop("An index on the GPU is out of range"),
        noop(
            "Most often a label is larger than the number of classes, or a token id larger than the "
            "vocabulary. Run it once with CUDA_LAUNCH_BLOCKING=1 or on the CPU to see the line."
        ),
        "RuntimeError: CUDA error: device-side assert triggered", Action.EDIT,
    ),
    Shipped(
        "devices", X, r"Expected all tensors to be on the same device|Input type \(.{1,60}\) and weight type",
        noop("Tensors are on different devices"),
        noop("Part of the data or of the model is on the CPU and part on the GPU. Move both with .to(device)."),
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
        "cuda:0 and cpu!",
        Action.EDIT,
    ),
    Shipped(
        "cuda", X, r"CUDA error|CUDNN_STATUS|CUBLAS_STATUS|cuDNN error",
        noop("The GPU reported an error"),
        noop(
            "GPU errors are reported asynchronously, so the line shown may be wrong. Run the job once with "
            "CUDA_LAUNCH_BLOCKING=1; if a small example fails, too, contact an administrator."
        ),
        "RuntimeError: CUDA error: an illegal memory access was encountered", Action.EDIT,
    ),
)  # fmt: skip

CODE = (
    Shipped(
        "nan",
        X,
        r"(?i)returned nan values|contains NaN|\bnan\b.{0,80}(?:loss|gradient|value)|(?:loss|gradient|"
        r"value).{0,80}\bnan\b|non-finite|FloatingPointError",
        noop("A value became NaN"),
        noop(
            "A number is no longer finite (%(when)s). Usual causes: a learning rate that is too large, a "
            "division by zero or a logarithm of zero, or NaN in the data. Clip gradients, lower the rate, "
            "and check the input."
        ),
        "ValueError: loss is nan", Action.CHART,
    ),
    Shipped(
        "syntax", X, r"(?:SyntaxError|IndentationError|TabError): ",
        noop("The script is not valid Python"),
        noop(
            "Python could not parse the script, so none of it has run. The error is in the line shown or the one "
            "before it."
        ),
        "SyntaxError: invalid syntax", Action.EDIT,
    ),
    Shipped(
        "arguments", L, r"^(?P<program>[\w./-]{1,100}): error: (?P<problem>.{1,200})$",
        noop("The arguments are not accepted"),
        noop("The script rejected its arguments: %(problem)s."),
        "train.py: error: unrecognized arguments: --epoch 3", Action.FORM,
    ),
    Shipped(
        "state_dict", X, r"Error\(s\) in loading state_dict",
        noop("The checkpoint does not fit the model"),
        noop(
            "The saved weights have other names or shapes than the model. It was changed since, or wrapped "
            "(a prefix “module.”)."
        ),
        "RuntimeError: Error(s) in loading state_dict for Net:", Action.EDIT,
    ),
    Shipped(
        "shapes",
        X,
        r"shapes cannot be multiplied|mismatch in its core dimension|size mismatch|size of tensor a|"
        r"could not be broadcast|is invalid for input of size|Expected input batch_size|shapes? .{0,60}not aligned|"
        r"Incompatible shapes|inconsistent numbers of samples|Found input variables with inconsistent|"
        r"but X has \d+ features",
        noop("The shapes do not fit together"),
        noop(
            "Two arrays or layers have sizes that do not match. Print the shapes before the line shown; the "
            "last, smaller batch of an epoch is a frequent cause."
        ),
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x784 and 512x10)", Action.EDIT,
    ),
    Shipped(
        "types",
        X,
        r"expected scalar type|expected m1 and m2 to have the same dtype|must have the same dtype|"
        r"not implemented for '(?:Half|Long|Int|Float|Double|Bool)'",
        noop("The data types do not fit together"),
        noop(
            "Two tensors have different types, for example float and double. Convert one: .float(), .long() "
            "or .to(dtype)."
        ),
        "RuntimeError: expected scalar type Float but found Double", Action.EDIT,
    ),
    Shipped(
        "zero", X, r"ZeroDivisionError",
        noop("Division by zero"),
        noop("Often an empty dataset or loader: its length is 0. Check that the data was found."),
        "ZeroDivisionError: division by zero", Action.EDIT,
    ),
    Shipped(
        "encoding", X, r"UnicodeDecodeError|UnicodeEncodeError",
        noop("Wrong text encoding"),
        noop(
            "A file has another encoding than it is read with. Specify it: open(path, encoding=\"utf-8\"), or open "
            "binary files with \"rb\"."
        ),
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte", Action.EDIT,
    ),
    Shipped(
        "data_format",
        X,
        r"JSONDecodeError|ParserError|EmptyDataError|UnidentifiedImageError|BadZipFile|ArrowInvalid",
        noop("A data file cannot be read"),
        noop("A file is empty, damaged, or not in the format it is read as. The error message has the position."),
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", Action.EDIT,
    ),
    Shipped(
        "recursion", X, r"RecursionError",
        noop("Infinite recursion"),
        noop(
            "The recursion limit was reached. The repeated lines of the traceback show which functions call each other."
        ),
        "RecursionError: maximum recursion depth exceeded", Action.EDIT,
    ),
    Shipped(
        "none", X, r"'NoneType' object",
        noop("A value is None"),
        noop(
            "A function returned nothing, or a lookup found nothing, and the result is used as an object in "
            "the line shown."
        ),
        "AttributeError: 'NoneType' object has no attribute 'shape'", Action.EDIT,
    ),
    Shipped(
        "environment", X, r"KeyError: '(?P<name>[A-Z][A-Z0-9_]{2,60})'",
        noop("The variable %(name)s is not set"),
        noop("The script reads %(name)s. If that is an environment variable, set it in the job's form."),
        "KeyError: 'WANDB_KEY'", Action.FORM,
    ),
    Shipped(
        "name", X, r"(?:NameError|UnboundLocalError): .{0,40}?'(?P<name>[^'\n]{1,80})'",
        noop("%(name)s is not defined"),
        noop("The name is misspelt, not imported, or assigned only later."),
        "NameError: name 'np' is not defined", Action.EDIT,
    ),
    Shipped(
        "attribute", X, r"AttributeError: .{0,120}has no attribute '(?P<name>[^'\n]{1,80})'",
        noop("There is no %(name)s"),
        noop(
            "The object has no such attribute: it is misspelt, of another type than expected, or of another "
            "version of the package."
        ),
        "AttributeError: module 'numpy' has no attribute 'float'", Action.EDIT,
    ),
    Shipped(
        "assertion", X, r"AssertionError",
        noop("An assertion failed"),
        noop("The condition of an assert statement is false. The line shown has the condition."),
        "AssertionError: no samples", Action.EDIT,
    ),
)  # fmt: skip

ENDS = (
    Shipped(
        "interrupt", R, r"\(SIGTERM\)|\(SIGINT\)",
        noop("The run was asked to stop"),
        noop(
            "It was ended by SIGTERM or SIGINT, sent by the platform, the machine or the script itself. Save "
            "checkpoints to keep intermediate results."
        ),
        "killed by signal 15 (SIGTERM)", Action.AGAIN,
    ),
    Shipped(
        "interrupt_python", X, r"^KeyboardInterrupt",
        noop("The run was interrupted"),
        noop("The script received SIGINT. If you did not send it, run the job again."),
        "KeyboardInterrupt", Action.AGAIN,
    ),
    Shipped(
        "crash", R, r"\(SIG(?:SEGV|BUS|ABRT|ILL|FPE)\)",
        noop("The process crashed"),
        noop(
            "Compiled code (a package such as torch or numpy) has crashed, not Python code. Run it with "
            "PYTHONFAULTHANDLER=1 to see the line; check the versions of the packages."
        ),
        "killed by signal 11 (SIGSEGV)", Action.FORM,
    ),
    Shipped(
        "killed", R, r"\(SIGKILL\)",
        noop("The process was killed"),
        noop("It received SIGKILL. If nobody cancelled it, the machine was probably out of memory: request more."),
        "killed by signal 9 (SIGKILL)", Action.MORE_MEMORY,
    ),
    Shipped(
        "killed_command", R, r"exit code 1[345]\d\b",
        noop("A command of the script was ended by a signal"),
        noop(
            "A shell ends with 128 plus the number of the signal that has ended its last command: 137 is SIGKILL, as "
            "when memory is used up, 139 a crash, 143 SIGTERM. The script may also have chosen this exit code "
            "itself. The end of the log may show more."
        ),
        "exit code 137",
    ),
    Shipped(
        "not_found", R, r"exit code 12[67]\b",
        noop("A command was not found"),
        noop("The script calls a program that this runtime does not have, or that is not executable."),
        "exit code 127", Action.EDIT,
    ),
    Shipped(
        "usage", R, r"exit code 2\b",
        noop("The arguments are probably wrong"),
        noop(
            "Exit code 2 usually means that a program did not accept its arguments. The end of the log has "
            "its message."
        ),
        "exit code 2", Action.FORM,
    ),
    Shipped(
        "reported", R, r"^reported by the job",
        noop("The script reported its failure"),
        noop("The script itself reported that it failed. The end of the log may show the cause."),
        "reported by the job", Action.EDIT,
    ),
)  # fmt: skip

FIRST, STEP = 100, 5
SHIPPED: tuple[Shipped, ...] = (*PACKAGES, *RESOURCES, *PLATFORM, *GPU, *FILES, *NETWORK, *CODE, *ENDS)
