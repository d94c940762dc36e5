"""`/api/v1/auth` as the gateway calls it, and an ordinary REST call with the same token, on a running platform.

The load generator shares the machine's cores with the platform.
"""

from __future__ import annotations

import bars
import instance
import load


def main() -> None:
    with instance.running(MLP_INNER_PORTS="true") as platform:
        headers = {"Authorization": f"Bearer {platform.token}"}
        for name, port, path in (
            ("auth, at gunicorn", platform.base + 3, "/api/v1/auth"),
            ("auth, through nginx", platform.port, "/api/v1/auth"),
            ("GET token, through nginx", platform.port, f"/api/v1/users/{platform.user}/token"),
        ):
            load.get(instance.HOST, port, path, headers, seconds=1)
            result = load.get(instance.HOST, port, path, headers)
            bars.note(name, result["per_second"], "/s")
            print(
                f"{name:<26} {result['per_second']:8.0f} /s   median {result['median_ms']:6.2f} ms"
                f"   p99 {result['p99_ms']:6.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
