{{/*
Envoy, and the process that keeps its files. A first run of that writes them before Envoy starts. At the end both are told at
once: the hook of Envoy keeps it alive while the other has it finish what is open and then end. All run as the same user, so
the files need no rights for others.
*/}}
{{- define "adaptive-gamma.envoyContainers" -}}
initContainers:
  - name: first-files
    {{- include "adaptive-gamma.container" (dict "root" . "resources" .Values.resources "step" "first") | nindent 4 }}
containers:
  - name: adaptive-gamma
    {{- include "adaptive-gamma.container" (dict "root" . "resources" .Values.resources) | nindent 4 }}
    ports:
      - {name: ag-admin, containerPort: {{ int .Values.ports.admin }}}
    {{- include "adaptive-gamma.probes" . | nindent 4 }}
    lifecycle:
      {{- include "adaptive-gamma.sleepFirst" (dict "root" . "seconds" .Values.preStopSeconds "python" true) | nindent 6 }}
  - name: envoy
    image: {{ include "adaptive-gamma.imageName" (dict "image" .Values.envoy.image "tag" "") | quote }}
    imagePullPolicy: {{ .Values.envoy.image.pullPolicy }}
    command: [envoy]
    args:
      - --config-path
      - {{ include "adaptive-gamma.envoyBootstrap" . }}
      - --concurrency
      - {{ int .Values.envoy.concurrency | quote }}
      - --log-level
      - {{ .Values.envoy.logLevel | quote }}
      - --disable-hot-restart
    ports:
      - {name: ag-data, containerPort: {{ int .Values.ports.data }}}
    securityContext:
      {{- include "adaptive-gamma.containerSecurityContext" . | nindent 6 }}
    resources:
      {{- toYaml .Values.envoy.resources | nindent 6 }}
    volumeMounts:
      - {name: envoy-files, mountPath: /envoy}
    startupProbe:
      tcpSocket: {port: ag-data}
      periodSeconds: 1
      failureThreshold: 60
    readinessProbe:
      tcpSocket: {port: ag-data}
      periodSeconds: 2
      failureThreshold: 2
    lifecycle:
      {{- include "adaptive-gamma.sleepFirst" (dict "root" . "seconds" (include "adaptive-gamma.envoyLastsSeconds" .)) | nindent 6 }}
{{- end -}}

{{- define "adaptive-gamma.envoyLastsSeconds" -}}
{{- add (int .Values.preStopSeconds) (include "adaptive-gamma.drainSeconds" . | int) 5 -}}
{{- end -}}

{{- define "adaptive-gamma.envoyBootstrap" -}}/envoy/envoy.json{{- end -}}
