"""OpenAPI generated from the views' declarations (`ContractView.calls`): one source for parsing and for documenting."""

from __future__ import annotations

from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.permissions import AllowAny

from .fields import PatternField, StrictSerializer
from .request_keys import FORM, HEADER
from .rest import PAGE_LIMIT
from .schema_links import AFTER, KIND
from .views import whole


class PatternExtension(OpenApiSerializerFieldExtension):
    """Shows the pattern that names are checked by."""

    target_class = PatternField
    match_subclasses = True

    def map_serializer_field(self, auto_schema, direction):
        most = self.target.max_length
        return {"type": "string", "pattern": self.target.pattern, **({"maxLength": most} if most else {})}


class StrictExtension(OpenApiSerializerExtension):
    """Says that unknown fields of a request body are refused."""

    target_class = StrictSerializer
    match_subclasses = True

    def map_serializer(self, auto_schema, direction):
        mapped = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {**mapped, "additionalProperties": False}


class Error(serializers.Serializer):
    """`msg` and nothing else."""

    msg = serializers.CharField(min_length=1, help_text="error message")


class ErrorExtension(StrictExtension):
    target_class = Error


class ContractSchema(AutoSchema):
    """Describes a view by its `calls`; every operation answers its own status, 403 or 503, and nothing else."""

    method_mapping = {"get": "retrieve", "post": "create", "put": "update", "delete": "destroy"}

    @property
    def _call(self):
        return self.view.calls[self.method.upper()]

    def get_summary(self):
        return self._call.summary

    def get_description(self):
        lines = [self.view.__class__.__doc__ or ""]
        if self.view.internal:
            lines.append("Internal: requires a service token or an administrator.")
        return "\n\n".join(line.strip() for line in lines if line)

    def get_tags(self):
        return [self.view.__class__.__module__.split(".")[0]]

    def get_extensions(self):
        return {KIND: self.view.kind, **({AFTER: self._call.after} if self._call.after else {})}

    def get_operation_id(self):
        return f"{self.method.lower()}{self.view.__class__.__name__}"

    def get_request_serializer(self):
        body = self._call.body
        if self._call.one_or_many:
            return PolymorphicProxySerializer(
                component_name=f"{body.__name__}OneOrMany",
                serializers=[body, body(many=True)],
                resource_type_field_name=None,
                many=False,
            )
        return body

    def _get_request_body(self, direction="request"):
        body = super()._get_request_body(direction)
        return {**body, "required": True} if body and self._call.one_or_many else body

    def get_auth(self):
        if AllowAny in self.view.permission_classes:
            return [{}, {"bearer": []}]
        return [{scheme: []} for scheme in self.view.security]

    def get_override_parameters(self):
        call = self._call
        parameters = [
            OpenApiParameter(name, kind, OpenApiParameter.QUERY, description=words, required=name in call.needs)
            for name, kind, words in call.query
        ]
        if call.many:
            most = call.most_offset
            parameters += [
                OpenApiParameter("limit", whole(1, PAGE_LIMIT), description=f"1 to {PAGE_LIMIT}"),
                OpenApiParameter("offset", whole(0, most), description="number of entries to skip"),
            ]
        if call.once:
            kind = {"type": "string", "pattern": f"^{FORM.pattern}$"}
            words = "with the key of an earlier request, of a day at most, the answer is what that one has created"
            parameters.append(OpenApiParameter(HEADER, kind, OpenApiParameter.HEADER, description=words))
        if call.states:
            parameters.append(OpenApiParameter("state", str, OpenApiParameter.QUERY, enum=list(call.states)))
        return parameters + [
            OpenApiParameter(
                name, whole(), OpenApiParameter.HEADER, description=words, required=required, response=[call.status]
            )
            for name, words, required in call.headers
        ]

    def _resolve_path_parameters(self, variables):
        parameters = super()._resolve_path_parameters(variables)
        for parameter in parameters:
            pattern = self.view.segments.get(parameter["name"])
            if pattern:
                parameter["schema"] = {"type": "string", "pattern": pattern}
        return parameters

    def get_response_serializers(self):
        call = self._call
        if call.media:
            text = call.media == ("text/plain",)
            success = OpenApiResponse(OpenApiTypes.STR if text else OpenApiTypes.BINARY, "success")
            success = {(call.status, media): success for media in call.media}
        elif call.out in (None, str):
            success = {call.status: OpenApiResponse(OpenApiTypes.STR, "success")}
        else:
            success = {call.status: OpenApiResponse(call.out(many=True) if call.many else call.out, "success")}
        if call.stream:
            if not call.media:
                success = {(call.status, "application/json"): success[call.status]}
            success[call.status, call.stream] = OpenApiResponse(OpenApiTypes.STR, "success, followed")
        return {
            **success,
            403: OpenApiResponse(Error, "refused: msg gives the reason"),
            503: OpenApiResponse(Error, "platform error: try again later"),
        }

    def get_filter_backends(self):
        return []

    def _get_paginator(self):
        return None
