"""Writes what the Helm chart takes from the code (roles, network policies of runs), and the kustomize base from the
chart: the output of `helm template`, which needs the program helm (in the PATH, or named by HELM).

    python tools/chart.py           write both; without helm the base is left as it is
    python tools/chart.py --check   exit with 1 if something would change
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CHART, BASE = ROOT / "deploy" / "chart", ROOT / "deploy" / "base" / "platform.yaml"
NAMESPACE = "mlp-namespace"  # which the templates replace
HEAD = "# Written by tools/chart.py from deploy/chart; do not edit.\n"


def of_code() -> dict[Path, str]:
    """Return the files of the chart whose content the code decides."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
    import yaml

    from runners.kubernetes import ClusterConfig, manifests

    objects = manifests.manifests(ClusterConfig(Path("/mlp"), namespace=NAMESPACE, claim="mlp"))
    kinds = {
        "roles": {"ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
        "policies": {"NetworkPolicy"},
    }
    return {
        CHART / "files" / f"{name}.yaml": HEAD
        + "---\n".join(
            yaml.safe_dump(plain(manifest), sort_keys=False) for manifest in objects if manifest["kind"] in wanted
        )
        for name, wanted in kinds.items()
    }


def plain(value):
    """Return a copy without shared objects, which YAML would write as references."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def helm() -> str | None:
    """Return the path of helm, None where there is none."""
    return os.environ.get("HELM") or shutil.which("helm")


def rendered(*options: str) -> str:
    """Return the output of `helm template` for the default values and the options, without the Secret."""
    given = ["--namespace", "mlp", "--set", "existingSecret=mlp-secrets", *options]
    command = [helm(), "template", "mlp", str(CHART), *given]
    return HEAD + subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write the files, or with --check compare them; return the exit code."""
    wanted = of_code()
    if "--check" not in sys.argv[1:]:
        for path, text in wanted.items():
            path.write_text(text)
        if helm():
            BASE.write_text(rendered())
        return 0
    wanted |= {BASE: rendered()} if helm() else {}
    return int(any(path.read_text() != text for path, text in wanted.items()))


if __name__ == "__main__":
    sys.exit(main())
