{{- define "relay.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{/* The Secret with everything that must not be seen. */}}
{{- define "relay.secret" -}}
{{- .Values.secrets.existing | default (include "relay.name" .) -}}
{{- end }}

{{/* An image by its digest, else by the tag that all images of ours share: (list $ .Values.archive). */}}
{{- define "relay.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{ $image.repository }}{{ with $image.digest }}@{{ . }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* What selects the pods of a role: (list $ "workers"). Never changes in the life of a release. */}}
{{- define "relay.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Chart.Name }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "relay.labels" -}}
{{ include "relay.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}
