{{/*
Envoy, and the process that writes its files as a native sidecar, so that the files are there before Envoy starts. Both run as
the same user: the files need no rights for others.
*/}}
{{- define "adaptive-gamma.envoyContainers" -}}
initContainers:
  - name: adaptive-gamma
    restartPolicy: Always
    {{- include "adaptive-gamma.container" (dict "root" . "resources" .Values.resources) | nindent 4 }}
    ports:
      - {name: ag-admin, containerPort: {{ int .Values.ports.admin }}}
    startupProbe:
      exec:
        command: [python, -c, "import os, sys; sys.exit(not os.path.exists('{{ include "adaptive-gamma.envoyBootstrap" . }}'))"]
      periodSeconds: 1
      timeoutSeconds: 5
      failureThreshold: 60
containers:
  - name: envoy
    image: {{ include "adaptive-gamma.imageName" (dict "image" .Values.envoy.image "tag" "") | quote }}
    imagePullPolicy: {{ .Values.envoy.image.pullPolicy }}
    command: [envoy]
    args:
      - --config-path={{ include "adaptive-gamma.envoyBootstrap" . }}
      - --concurrency={{ int .Values.envoy.concurrency }}
      - --log-level={{ .Values.envoy.logLevel }}
      - --disable-hot-restart
      - --drain-strategy=immediate
    ports:
      - {name: ag-data, containerPort: {{ int .Values.ports.data }}}
    securityContext:
      {{- include "adaptive-gamma.containerSecurityContext" . | nindent 6 }}
    resources:
      {{- toYaml .Values.envoy.resources | nindent 6 }}
    volumeMounts:
      - {name: envoy-files, mountPath: /envoy, readOnly: true}
    readinessProbe:
      tcpSocket: {port: ag-data}
      periodSeconds: 2
      failureThreshold: 2
    livenessProbe:
      tcpSocket: {port: ag-data}
      periodSeconds: 10
      failureThreshold: 6
    lifecycle:
      {{- include "adaptive-gamma.sleepFirst" (dict "root" . "seconds" .Values.envoy.drainSeconds) | nindent 6 }}
{{- end -}}

{{- define "adaptive-gamma.envoyBootstrap" -}}/envoy/bootstrap.yaml{{- end -}}
