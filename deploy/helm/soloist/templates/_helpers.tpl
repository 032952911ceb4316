{{- define "soloist.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- define "soloist.lease" -}}
{{ .Values.lease | default (include "soloist.name" .) }}
{{- end }}
{{- define "soloist.serviceAccount" -}}
{{ .Values.serviceAccount | default (include "soloist.name" .) }}
{{- end }}
{{- define "soloist.path" -}}
{{ ternary .Values.soloist.path "/soloist-bin/soloist" (eq .Values.soloist.delivery "in-image") }}
{{- end }}
