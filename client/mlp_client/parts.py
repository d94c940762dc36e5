"""A large file that is sent to a bucket in parts, by several threads."""

from __future__ import annotations

import re
import threading
import time
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from .bucket import md5
from .texts import tr
from .transfer import upload as uploads
from .transfer.errors import REFUSED, UNREACHABLE, Failure
from .transfer.scan import Local

AT_ONCE = 50  # parts whose addresses are asked for together
FRESH_S = 200  # of the 300 seconds for which an address is good
NUMBER = re.compile(r"[0-9]{1,18}\Z")
NOT_LISTED = (400, 403, 404, 405, 501)  # of servers that do not list unfinished uploads, or not for this key


class Large:
    """One file and its upload, an unfinished one where the bucket has one of the same key."""

    def __init__(self, work, local: Local, row: dict):
        self.work, self.local, self.row = work, local, row
        self.numbers = range(1, row["parts"] + 1)
        self.upload, self.tags = "", {}
        self.counted, self.fails = 0, False  # bytes; whether the bucket refuses parts of this upload
        self.asked: dict = {}  # number of a part: (when it was asked for, address)
        self.have: dict = {}  # number of a part: (tag, size)
        self.lock = threading.Lock()

    def begin(self, find, create) -> None:
        """Begin, or go on with the unfinished upload of an interrupted run. Raises Failure."""
        answer = self.work.bucket.ask("GET", find, expect=NOT_LISTED)
        found = _elements(answer.body, "Upload") if answer.status == 200 else []
        mine = [each for each in found if each.get("Key") == self.row["key"] and each.get("UploadId")]
        if mine:
            self.upload = max(mine, key=lambda each: each.get("Initiated", ""))["UploadId"]
        else:
            self.begin_anew(create)

    def begin_anew(self, create) -> None:
        """Begin another upload, to which all parts are to be sent. Raises Failure."""
        self.work.progress.add(-self.counted)
        self.tags, self.asked, self.have, self.counted, self.fails = {}, {}, {}, 0, False
        headers = {"Content-Type": self.row["type"]} if self.row["type"] else {}
        self.upload = self.work.bucket.ask("POST", create, headers=headers).field("UploadId")
        if not self.upload:
            raise Failure(UNREACHABLE, tr("{path}: the server of the bucket has begun no upload", path=self.local.path))

    def _ask(self, numbers: list) -> dict:
        body = {"path": self.local.path, "size": self.local.size, "upload": self.upload, "numbers": numbers}
        return self.work.rest.send("POST", f"{self.work.place}/parts", body).json()

    def _address(self, number: int, fresh: bool) -> str:
        """Return the address of a part, which is asked for with those of the next parts. Raises Failure."""
        with self.lock:
            asked, address = self.asked.get(number, (0.0, ""))
            if not address or fresh or time.monotonic() - asked > FRESH_S:
                now, seen = time.monotonic(), number in self.asked
                answer = self._ask(list(self.numbers[number - 1 : number - 1 + AT_ONCE]))
                if not seen:
                    self._look(answer["list"])
                self.asked.update({part["number"]: (now, part["put"]) for part in answer["parts"]})
                address = self.asked[number][1]
            return address

    def _look(self, address: str) -> None:
        """Read which parts the bucket has."""
        answer = self.work.bucket.ask("GET", lambda fresh: address, expect=NOT_LISTED)
        for part in _elements(answer.body, "Part") if answer.status == 200 else ():
            number, size = part.get("PartNumber", ""), part.get("Size", "")
            if NUMBER.match(number) and NUMBER.match(size):
                self.have[int(number)] = (part.get("ETag", "").strip('"'), int(size))

    def send_part(self, number: int) -> None:
        """Send a part unless the bucket has it; who has sent the last one joins them. Raises Failure."""
        if self.fails:
            return
        self._address(number, fresh=False)
        first = (number - 1) * self.row["part"]
        size, digest = min(self.row["part"], self.local.size - first), md5()
        for _block in uploads._blocks(self.local, self.work.check, digest, first, size):
            pass
        there = self.have.get(number) == (digest.hexdigest(), size)
        if not there:
            answer = self.work.deliver(
                self.local, lambda fresh: self._address(number, fresh), digest, size,
                lambda: uploads._blocks(self.local, self.work.check, md5(), first, size), {},
                expect=(404, 501) if number in self.have else (404,),
            )  # fmt: skip
            if answer.status >= 400:  # the upload is gone, or the server replaces no part (rclone's)
                self.fails = True
                return
        self.work.progress.add(size, moved=not there)
        with self.lock:
            self.counted += size
            self.tags[number] = digest.hexdigest() if there else (answer.headers.get("ETag") or "").strip('"')
            is_last = len(self.tags) == len(self.numbers)
        if is_last:
            self._complete()
            self.work.progress.file_done()

    def _complete(self) -> None:
        named = "".join(
            f'<Part><PartNumber>{number}</PartNumber><ETag>"{escape(tag)}"</ETag></Part>'
            for number, tag in sorted(self.tags.items())
        )
        body = f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>".encode()
        answer = self.work.bucket.ask("POST", lambda fresh: self._ask([])["complete"], (400, 404), body)
        # An earlier try may have joined them, and its answer was lost.
        if (answer.status >= 400 or answer.code) and not self.work.is_there(self.local, self.row["part"]):
            raise self.lost()

    def lost(self) -> Failure:
        """Return the error of an upload that cannot be completed."""
        path = self.local.path
        return Failure(
            REFUSED, tr("{path}: the bucket does not have all of its parts any more; run the command again", path=path)
        )


class Plain(ElementTree.TreeBuilder):
    """Builds a document without a type: S3 sends none, and its entities could grow without a bound."""

    def doctype(self, *_declared) -> None:
        """Raise ValueError."""
        raise ValueError("there is a document type")


def _elements(body: bytes, name: str) -> list:
    """Return the elements of that name, each as its children's texts by name; none of what is no XML of S3."""
    try:
        document = ElementTree.fromstring(body, ElementTree.XMLParser(target=Plain()))
    except (ElementTree.ParseError, ValueError, LookupError):  # LookupError: an unknown encoding
        return []
    found = (each for each in document.iter() if each.tag.rpartition("}")[2] == name)
    return [{child.tag.rpartition("}")[2]: child.text or "" for child in each} for each in found]
