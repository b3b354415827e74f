{{/* The kubelet speaks gRPC without TLS only; with TLS it can see no more than that the port is open. */}}
{{- define "adaptive-gamma.pickerProbes" -}}
{{- if eq .Values.picker.tls "off" -}}
startupProbe:
  grpc: {port: {{ int .Values.ports.picker }}, service: liveness}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  grpc: {port: {{ int .Values.ports.picker }}, service: liveness}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  grpc: {port: {{ int .Values.ports.picker }}, service: readiness}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- else -}}
{{- include "adaptive-gamma.probes" . -}}
{{- end -}}
{{- end -}}
