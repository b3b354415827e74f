{{- define "adaptive-gamma.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 50 characters: what is added to it must stay within the 63 of a name. */}}
{{- define "adaptive-gamma.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "adaptive-gamma.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "adaptive-gamma.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.selectorLabels" -}}
app.kubernetes.io/name: {{ include "adaptive-gamma.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Values.mode }}
{{- end -}}

{{/* Of the pods that serve: ours, or in sidecar mode the engine's. */}}
{{- define "adaptive-gamma.podSelector" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- toYaml .Values.sidecar.matchLabels -}}
{{- else -}}
{{- include "adaptive-gamma.selectorLabels" . -}}
{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.labels" -}}
{{- include "adaptive-gamma.selectorLabels" . }}
{{ include "adaptive-gamma.commonLabels" . }}
{{- end -}}

{{- define "adaptive-gamma.commonLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "adaptive-gamma.testLabels" -}}
app.kubernetes.io/name: {{ include "adaptive-gamma.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "adaptive-gamma.serviceAccountName" -}}
{{- if eq .Values.mode "sidecar" -}}
{{- .Values.sidecar.serviceAccountName -}}
{{- else if .Values.serviceAccount.create -}}
{{- default (include "adaptive-gamma.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Takes a mapping with repository, tag, digest, and the tag to take where there is none. */}}
{{- define "adaptive-gamma.imageName" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (default .tag .image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.image" -}}
{{- include "adaptive-gamma.imageName" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* "true" where replicas come from the API server: only then is there a Role, and a token in the container. */}}
{{- define "adaptive-gamma.asksApiServer" -}}
{{- if eq (dig "kind" "" (default (dict) .Values.config.discovery)) "kubernetes" -}}true{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.drainSeconds" -}}
{{- dig "drain" "grace_s" 120 .Values.config | ceil | int -}}
{{- end -}}

{{- define "adaptive-gamma.terminationGracePeriodSeconds" -}}
{{- if not (kindIs "invalid" .Values.terminationGracePeriodSeconds) -}}
{{- .Values.terminationGracePeriodSeconds | int -}}
{{- else if eq .Values.mode "envoy" -}}
{{- add (include "adaptive-gamma.envoyLastsSeconds" . | int) 5 -}}
{{- else if eq .Values.mode "sidecar" -}}
{{- add (.Values.sidecar.enginePreStopSeconds | int) (include "adaptive-gamma.drainSeconds" . | int) 5 -}}
{{- else -}}
{{- add (.Values.preStopSeconds | int) (include "adaptive-gamma.drainSeconds" . | int) 5 -}}
{{- end -}}
{{- end -}}

{{/* Waits before the process is told to stop. The field sleep is on by default from Kubernetes 1.30 on. */}}
{{- define "adaptive-gamma.sleepFirst" -}}
{{- $seconds := .seconds | int -}}
{{- if semverCompare ">=1.30.0-0" .root.Capabilities.KubeVersion.Version -}}
preStop: {sleep: {seconds: {{ $seconds }}}}
{{- else -}}
preStop: {exec: {command: {{ if .python }}["python", "-c", "import time; time.sleep({{ $seconds }})"]{{ else }}["sleep", "{{ $seconds }}"]{{ end }}}}
{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.listen" -}}
{{- if contains ":" .host -}}[{{ .host }}]:{{ .port }}{{- else -}}{{ .host }}:{{ .port }}{{- end -}}
{{- end -}}

{{/*
What adaptive-gamma runs as in each mode: the one place where its arguments are. Takes root, and step: "first" for the run that
writes Envoy's files before Envoy starts.
*/}}
{{- define "adaptive-gamma.args" -}}
{{- $step := default "" .step -}}
{{- with .root -}}
{{- if eq .Values.mode "envoy" -}}
- envoy
- --config=/etc/adaptive-gamma/config.yaml
- --out=/envoy
- --envoy-admin=127.0.0.1:9901
- --log-level={{ .Values.logLevel }}
- {{ ternary "--once" "--drain" (eq $step "first") }}
{{- else if eq .Values.mode "gateway" -}}
- picker
- --config=/etc/adaptive-gamma/config.yaml
- --listen={{ include "adaptive-gamma.listen" (dict "host" .Values.listenHost "port" (int .Values.ports.picker)) }}
- --log-level={{ .Values.logLevel }}
{{- if eq .Values.picker.tls "secret" }}
- --tls=files
- --cert=/etc/adaptive-gamma-tls/tls.crt
- --key=/etc/adaptive-gamma-tls/tls.key
{{- else }}
- --tls={{ .Values.picker.tls }}
{{- end }}
{{- else -}}
- serve
- --config=/etc/adaptive-gamma/config.yaml
- --log-level={{ .Values.logLevel }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "adaptive-gamma.podSecurityContext" -}}
runAsNonRoot: true
{{- if .Values.runAsUser }}
runAsUser: {{ int .Values.runAsUser }}
runAsGroup: {{ int .Values.runAsUser }}
fsGroup: {{ int .Values.runAsUser }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "adaptive-gamma.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
