"""The OpenAPI schema over REST. Anybody may read it, and to generate it takes long: it is generated once per process
and language, and sent to those who do not have it yet.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from typing import NamedTuple

from django.http import HttpResponse
from django.utils.cache import get_conditional_response, patch_vary_headers
from django.utils.translation import get_language, get_supported_language_variant, override
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView


class Document(NamedTuple):
    """The schema in one language."""

    plain: bytes
    packed: bytes
    tag: str


_documents: dict[str, Document] = {}  # by language
_generating = threading.Lock()  # requests at the same time wait for one generation


class Schema(SpectacularJSONAPIView):
    @extend_schema(exclude=True)
    def get(self, request, *args, **kwargs):
        document = self._document(_language(request.GET.get("lang", "")))
        packs = "gzip" in request.headers.get("Accept-Encoding", "")
        response = HttpResponse(document.packed if packs else document.plain, OpenApiJsonRenderer.media_type)
        response["Content-Disposition"] = 'inline; filename="ML platform.json"'
        response["ETag"], response["Cache-Control"] = f'W/"{document.tag}"', "no-cache"
        if packs:
            response["Content-Encoding"] = "gzip"
        patch_vary_headers(response, ["Accept-Encoding", "Accept-Language", "Cookie"])
        return get_conditional_response(request, etag=response["ETag"], response=response)

    def _document(self, language: str) -> Document:
        document = _documents.get(language)
        if document is None:
            with _generating:
                document = _documents.get(language) or self._generate(language)
                _documents[language] = document
        return document

    def _generate(self, language: str) -> Document:
        with override(language):
            schema = self.generator_class().get_schema(request=None, public=True)
            plain = OpenApiJsonRenderer().render(schema)
        return Document(plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])


def _language(wanted: str) -> str:
    """Return the language that is asked for where there is such a translation, else that of the request."""
    for language in filter(None, (wanted, get_language())):
        try:
            return get_supported_language_variant(language)
        except LookupError:
            continue
    return "en"
