{{/*
The proxy as a native sidecar: one entry of initContainers in the pod of an engine.
Native sidecars start before the engine and stop after it. The startup probe asks only whether the process is up: the engine's
container starts when it has passed, so a probe that waited for the engine would wait forever.
*/}}
{{- define "adaptive-gamma.sidecar" -}}
- name: adaptive-gamma
  restartPolicy: Always
  {{- include "adaptive-gamma.container" (dict "root" . "resources" .Values.sidecar.resources) | nindent 2 }}
  ports:
    - {name: ag-data, containerPort: {{ int .Values.ports.data }}}
    - {name: ag-admin, containerPort: {{ int .Values.ports.admin }}}
  {{- include "adaptive-gamma.probes" . | nindent 2 }}
{{- end -}}

{{/* What the pod around it needs, as a strategic merge patch of the engine's Deployment. */}}
{{- define "adaptive-gamma.sidecarPatch" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ required "sidecar.deployment: name the engine's Deployment" .Values.sidecar.deployment | quote }}
spec:
  template:
    {{- with (include "adaptive-gamma.configChecksum" . | trim) }}
    metadata:
      annotations:
        adaptive-gamma-{{ . }}
    {{- end }}
    spec:
      terminationGracePeriodSeconds: {{ include "adaptive-gamma.terminationGracePeriodSeconds" . }}
      {{- if and .Values.sidecar.gammaSchedule .Values.sidecar.scheduleGroup }}
      securityContext: {fsGroup: {{ int .Values.sidecar.scheduleGroup }}, fsGroupChangePolicy: OnRootMismatch}
      {{- end }}
      initContainers:
        {{- include "adaptive-gamma.sidecar" . | nindent 8 }}
      containers:
        - name: {{ required "sidecar.container: name the engine's container" .Values.sidecar.container | quote }}
          lifecycle:
            {{- include "adaptive-gamma.sleepFirst" (dict "root" . "seconds" .Values.sidecar.enginePreStopSeconds) | nindent 12 }}
          {{- if .Values.sidecar.gammaSchedule }}
          env:
            - {name: ADAPTIVE_GAMMA_PLUGIN_FILE, value: /var/run/adaptive-gamma/gamma.json}
            - {name: VLLM_PLUGINS, value: adaptive_gamma}
          volumeMounts:
            - {name: adaptive-gamma-schedule, mountPath: /var/run/adaptive-gamma}
          {{- end }}
      volumes:
        {{- include "adaptive-gamma.volumes" . | nindent 8 }}
{{- end -}}
