{{/* config.yaml as adaptive-gamma reads it. */}}
{{- define "adaptive-gamma.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if .Values.policyDocument -}}
{{- if $config.policy -}}{{- fail "config.policy and policyDocument: give one of the two" -}}{{- end -}}
{{- $_ := set $config "policy" "/etc/adaptive-gamma/policy.yaml" -}}
{{- else if not $config.policy -}}
{{- fail "config.policy: name a shipped policy, or give a policy file as policyDocument" -}}
{{- end -}}
{{- $_ := set $config "listen" (include "adaptive-gamma.listen" (dict "host" .Values.listenHost "port" (int .Values.ports.data))) -}}
{{- $_ := set $config "admin" (include "adaptive-gamma.listen" (dict "host" .Values.listenHost "port" (int .Values.ports.admin))) -}}
{{- if and (eq .Values.mode "sidecar") (not $config.replicas) (not $config.discovery) -}}
{{- $_ := set $config "replicas" (list (fromYaml (include "adaptive-gamma.ownEngine" .))) -}}
{{- end -}}
{{- if not $config.replicas -}}
{{- if not $config.discovery -}}{{- fail "config.replicas or config.discovery: name the engines" -}}{{- end -}}
{{- $_ := unset $config "replicas" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* The engine of the same pod, as a replica. */}}
{{- define "adaptive-gamma.ownEngine" -}}
name: engine
url: http://127.0.0.1:{{ int .Values.sidecar.enginePort }}
engine: {{ .Values.sidecar.engine }}
{{- if .Values.sidecar.gammaSchedule }}
set_gamma: vllm_schedule
gamma_control: {file: /var/run/adaptive-gamma/gamma.json}
{{- end }}
{{- end -}}

{{- define "adaptive-gamma.configData" -}}
config.yaml: |
  {{- include "adaptive-gamma.config" . | nindent 2 }}
{{- with .Values.policyDocument }}
policy.yaml: |
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "adaptive-gamma.configChecksum" -}}
{{- if .Values.rollOnConfigChange }}
checksum/config: {{ include "adaptive-gamma.configData" . | sha256sum }}
{{- end }}
{{- end -}}
