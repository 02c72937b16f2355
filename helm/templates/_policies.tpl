{{/* Where a pod of ours may connect to: names, and the server. */}}
{{- define "relay.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- if .Values.redis.enabled }}
    - {port: 6379, protocol: TCP}
  to:
    - podSelector:
        matchLabels: {{- include "relay.selector" (list . "redis") | nindent 10 }}
    {{- else }}
    {{- range .Values.networkPolicy.redisPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
    {{- end }}
{{- end }}
