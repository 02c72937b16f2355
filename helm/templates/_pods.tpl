{{/* What every pod of ours has. Service links would put RELAY_PORT=tcp://… and others into the environment, at which the
relay refuses to start. */}}
{{- define "relay.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The pods of a role are spread over zones and nodes: (list $ "workers"). */}}
{{- define "relay.spread" -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: {{ (index $ 0).Values.relay.spread }}
  labelSelector:
    matchLabels: {{- include "relay.selector" $ | nindent 6 }}
{{- end }}
{{- end }}

{{- define "relay.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A variable from the Secret: (list $ "RELAY_REDIS_URL" "redis-url"). */}}
{{- define "relay.secretVariable" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef: {name: {{ include "relay.secret" (index . 0) }}, key: {{ index . 2 }}}
{{- end }}

{{/* The settings as variables. Numbers go through toJson, or Helm would write large ones as 6.7108864e+07. */}}
{{- define "relay.settings" -}}
{{ include "relay.secretVariable" (list . "RELAY_REDIS_URL" "redis-url") }}
{{- range $name, $value := .Values.settings }}
- name: RELAY_{{ upper $name }}
  value: {{ if kindIs "slice" $value }}{{ join "," $value | quote }}{{ else if kindIs "string" $value }}{{ quote $value }}{{ else }}{{ toJson $value | quote }}{{ end }}
{{- end }}
{{- end }}
