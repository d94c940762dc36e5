"""Log lines by REST, where a line with an id may be sent again, and by Loki's push, where none has one."""

from __future__ import annotations

import json
import time

from .actor import Actor

LINES_OF_A_WORKLOAD = 400  # a search returns the first ten thousand


class Shipper(Actor):
    """Sends batches of lines, each line with a text of its own."""

    pace = 1.5

    def act(self) -> None:
        count = self.random.randrange(1, 20)
        first = self.number
        self.number += count
        workload = f"shop{chr(97 + first // LINES_OF_A_WORKLOAD)}"
        texts = [f"storm order {self.user} {first + index} paid" for index in range(count)]
        sure = self.by_loki(workload, texts) if self.random.random() < 0.3 else self.by_rest(workload, texts)
        self.note("lines", sure, workload=workload, texts=texts)

    def by_rest(self, workload: str, texts: list[str]) -> bool:
        rows = [{"log": text, "deployment": workload, "_id": text.replace(" ", "-")} for text in texts]
        answer = self.caller.until_known(lambda: self.caller.call("POST", "aiops/logs", rows))
        if answer.known and not answer.ok:
            self.odd("send lines", answer)
        return answer.known

    def by_loki(self, workload: str, texts: list[str]) -> bool:
        values = [[str(time.time_ns() + index), text] for index, text in enumerate(texts)]
        body = {"streams": [{"stream": {"app": workload}, "values": values}]}
        answer = self.caller.ask(
            "POST", "/loki/api/v1/push", json.dumps(body).encode(), Content_Type="application/json"
        )
        if answer.known and not answer.ok:
            self.odd("push lines", answer)
        return answer.known
