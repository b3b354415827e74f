{{/* What every container that runs adaptive-gamma has in common. Takes root, resources, and step (see args). */}}
{{- define "adaptive-gamma.container" -}}
{{- $root := .root -}}
image: {{ include "adaptive-gamma.image" $root | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  {{- include "adaptive-gamma.args" . | nindent 2 }}
{{- if or $root.Values.engineApiKey.existingSecret $root.Values.extraEnv }}
env:
  {{- with $root.Values.engineApiKey }}
  {{- if .existingSecret }}
  - name: ADAPTIVE_GAMMA_ENGINE_API_KEY
    valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .key | quote }}}}
  {{- end }}
  {{- end }}
  {{- with $root.Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
securityContext:
  {{- include "adaptive-gamma.containerSecurityContext" $root | nindent 2 }}
{{- if and (eq $root.Values.mode "sidecar") $root.Values.runAsUser }}
  runAsNonRoot: true
  runAsUser: {{ int $root.Values.runAsUser }}
{{- end }}
{{- if eq $root.Values.mode "sidecar" }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}
resources:
  {{- toYaml .resources | nindent 2 }}
volumeMounts:
  - {name: adaptive-gamma-config, mountPath: /etc/adaptive-gamma, readOnly: true}
  - {name: adaptive-gamma-state, mountPath: /var/lib/adaptive-gamma}
  {{- if eq $root.Values.mode "envoy" }}
  - {name: envoy-files, mountPath: /envoy}
  {{- end }}
  {{- if and (eq $root.Values.mode "gateway") (eq $root.Values.picker.tls "secret") }}
  - {name: picker-tls, mountPath: /etc/adaptive-gamma-tls, readOnly: true}
  {{- end }}
  {{- if and (eq $root.Values.mode "sidecar") $root.Values.sidecar.gammaSchedule }}
  - {name: adaptive-gamma-schedule, mountPath: /var/run/adaptive-gamma}
  {{- end }}
  {{- if include "adaptive-gamma.asksApiServer" $root }}
  - {name: adaptive-gamma-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- end }}
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "adaptive-gamma.volumes" -}}
- name: adaptive-gamma-config
  configMap: {name: {{ include "adaptive-gamma.fullname" . }}}
- name: adaptive-gamma-state
  emptyDir: {sizeLimit: {{ .Values.stateVolume.sizeLimit }}}
{{- if eq .Values.mode "envoy" }}
- name: envoy-files
  {{- /* In memory: a busy disk would hold up new weights. They are some hundred kilobytes. */}}
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- end }}
{{- if and (eq .Values.mode "gateway") (eq .Values.picker.tls "secret") }}
- name: picker-tls
  secret: {secretName: {{ required "picker.tlsSecret: name the Secret with tls.crt and tls.key" .Values.picker.tlsSecret | quote }}, defaultMode: 0440}
{{- end }}
{{- if and (eq .Values.mode "sidecar") .Values.sidecar.gammaSchedule }}
- name: adaptive-gamma-schedule
  emptyDir: {sizeLimit: 1Mi}
{{- end }}
{{- if include "adaptive-gamma.asksApiServer" . }}
{{- /* Where in-cluster clients look; only the container that mounts it has the token. */}}
- name: adaptive-gamma-token
  projected:
    defaultMode: 0444
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of the processes with an admin port. */}}
{{- define "adaptive-gamma.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: ag-admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: ag-admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: ag-admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}
