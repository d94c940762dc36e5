{{- define "mlp.labels" -}}
app.kubernetes.io/name: mlp
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "mlp.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "mlp.secret" -}}{{ .Values.existingSecret | default "mlp-secrets" }}{{- end }}

{{- define "mlp.claim" -}}{{ .Values.storage.existingClaim | default "mlp" }}{{- end }}

{{- define "mlp.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "mlp.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A mapping as the platform's settings have it: key=value,… */}}
{{- define "mlp.pairs" -}}
{{- $pairs := list -}}
{{- range $key, $value := . -}}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end }}

{{/* The environment of every part, in which `settings` replace the chart's own variables: a name twice is refused by
server-side apply. Takes (dict "root" $ "part" NAME): the part listens on all addresses itself. */}}
{{- define "mlp.environment" -}}
{{- $own := include "mlp.variables" . -}}
{{- range $name, $value := .root.Values.settings -}}
{{- $own = regexReplaceAll (printf "(?m)^- (\\{name: %s, .*|name: %s\n.*)\n?" $name $name) $own "" -}}
{{- end -}}
{{- trimSuffix "\n" $own }}
{{- range $name, $value := .root.Values.settings }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* The variables of a part that come from the other values. Takes what mlp.environment takes. */}}
{{- define "mlp.variables" -}}
{{- $root := .root -}}
{{- $here := .part -}}
- {name: MLP_ROOT, value: /mlp}
- {name: MLP_HOST, value: 0.0.0.0}
- {name: MLP_INSTANCE_DIR, value: /instance}
- {name: HOME, value: /tmp}
- {name: PYTHONDONTWRITEBYTECODE, value: "1"}
- {name: MLP_RUNNER, value: kubernetes}
- {name: MLP_K8S_NAMESPACE, value: {{ $root.Release.Namespace }}}
- {name: MLP_K8S_PVC, value: {{ include "mlp.claim" $root }}}
{{- range $runtime, $image := $root.Values.runImages }}
{{- if $image }}
- {name: MLP_K8S_IMAGE_{{ upper $runtime }}, value: {{ $image | quote }}}
{{- end }}
{{- end }}
{{- with $root.Values.jobImages }}
{{- $images := list }}
{{- range $name, $image := . }}
{{- $images = append $images (printf "%s=%s" $name $image) }}
{{- end }}
- {name: MLP_K8S_IMAGES, value: {{ join "," $images | quote }}}
{{- end }}
{{- $taints := list }}
{{- range $purpose, $listed := ($root.Values.runs).tolerations }}
{{- range $taint := $listed }}
{{- $taints = append $taints (printf "%s:%s" $purpose $taint) }}
{{- end }}
{{- end }}
{{- with $taints }}
- {name: MLP_K8S_TOLERATIONS, value: {{ join "," . | quote }}}
{{- end }}
{{- with ($root.Values.runs).priorityClasses }}
- {name: MLP_K8S_PRIORITY_CLASSES, value: {{ include "mlp.pairs" . | quote }}}
{{- end }}
{{- with $root.Values.bucketClaims }}
- {name: MLP_K8S_BUCKET_CLAIMS, value: {{ include "mlp.pairs" . | quote }}}
{{- end }}
{{- with ($root.Values.kueue).queue }}
- {name: MLP_K8S_KUEUE_QUEUE, value: {{ . | quote }}}
{{- end }}
{{- with ($root.Values.kueue).queues }}
- {name: MLP_K8S_KUEUE_QUEUES, value: {{ include "mlp.pairs" . | quote }}}
{{- end }}
{{- if $root.Values.ingress.enabled }}
- {name: MLP_K8S_INGRESS_CLASS, value: {{ $root.Values.ingress.className }}}
- {name: MLP_K8S_INGRESS_HOST, value: {{ (urlParse $root.Values.appUrl).hostname }}}
- {name: MLP_K8S_INGRESS_GATEWAY, value: "mlp-app-gateway:30002"}
{{- end }}
- {name: MLP_URL, value: {{ $root.Values.url | quote }}}
- {name: MLP_APP_URL, value: {{ $root.Values.appUrl | quote }}}
{{- if $root.Values.workspaceUrl }}
- {name: MLP_WORKSPACE_URL, value: {{ $root.Values.workspaceUrl | quote }}}
{{- end }}
- {name: MLP_RUN_URL, value: "http://mlp-gateway.{{ $root.Release.Namespace }}.svc.cluster.local:30001"}
{{- range $name, $variable := dict "web" "WEB" "websockets" "WEBSOCKET" "data" "DATA" }}
- {name: MLP_{{ $variable }}_ADDRESS, value: "{{ if eq $name $here }}0.0.0.0{{ else }}mlp-{{ $name }}{{ end }}:{{ (index $root.Values.parts $name).port }}"}
{{- end }}
- {name: MLP_GATEWAY_ADDRESS, value: "mlp-gateway:30001"}
- {name: MLP_APP_GATEWAY_ADDRESS, value: "mlp-app-gateway:30002"}
{{- with $root.Values.trustedProxies }}
- {name: MLP_TRUSTED_PROXIES, value: {{ . | quote }}}
{{- end }}
{{- range $variable, $key := dict "MLP_SECRET_KEY" "secret-key" "MLP_ADMIN_PASSWORD" "admin-password" "MLP_METRICS_TOKEN" "metrics-token" "DATABASE_URL" "database-url" "REDIS_URL" "redis-url" "NATS_URL" "nats-url" }}
- name: {{ $variable }}
  valueFrom: {secretKeyRef: {name: {{ include "mlp.secret" $root }}, key: {{ $key }}}}
{{- end }}
{{- end }}

{{- define "mlp.mounts" -}}
- {name: storage, mountPath: /mlp}
- {name: instance, mountPath: /instance}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "mlp.volumes" -}}
- name: storage
  persistentVolumeClaim: {claimName: {{ include "mlp.claim" . }}}
- {name: instance, emptyDir: {}}
- {name: tmp, emptyDir: {}}
{{- end }}
