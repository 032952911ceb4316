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
{{- if and (eq .Values.soloist.delivery "image-volume") (semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "Kubernetes %s has no image volumes, or alpha ones (they are beta since 1.33 behind the feature gate ImageVolume, and on since 1.35): set soloist.delivery to init-container" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- ternary .Values.soloist.path "/soloist-bin/soloist" (eq .Values.soloist.delivery "in-image") }}
{{- end }}
{{- /* "true" where the preStop hook is `soloist prestop`. */}}
{{- define "soloist.waits" -}}
{{- if eq (.Values.prestopHook | default (ternary "soloist" "sleep" (eq .Values.store "none"))) "soloist" }}true{{ end }}
{{- end }}
{{- /* What the hook takes at most, in seconds; empty without one. */}}
{{- define "soloist.prestop" -}}
{{- $seconds := int .Values.prestopSeconds }}
{{- if and (not $seconds) (include "soloist.waits" .) }}{{ $seconds = 15 }}{{ end }}
{{- if ge $seconds (int .Values.gracePeriodSeconds) }}
{{- fail (printf "the preStop time %ds leaves nothing of gracePeriodSeconds %d: raise it, or lower prestopSeconds" $seconds (int .Values.gracePeriodSeconds)) }}
{{- end }}
{{- if $seconds }}{{ $seconds }}{{ end }}
{{- end }}
{{- /* The values' own, and where the hook is soloist's that for a node that shuts down, unless they say what is done on one that is not ready. */}}
{{- define "soloist.tolerations" -}}
{{- $all := .Values.tolerations | default list }}
{{- $keys := list }}
{{- range $all }}{{ $keys = append $keys (.key | default "") }}{{ end }}
{{- if and (include "soloist.waits" .) (not (has "" $keys)) (not (has "node.kubernetes.io/not-ready" $keys)) }}
{{- $all = append $all (dict "key" "node.kubernetes.io/not-ready" "operator" "Exists" "effect" "NoExecute" "tolerationSeconds" 0) }}
{{- end }}
{{- if $all }}{{ toJson $all }}{{ end }}
{{- end }}
{{- define "soloist.hasRights" -}}
{{- if eq .Values.store "none" }}
{{- if or .Values.extraRights .Values.labelRole .Values.leaveCordonedNode .Values.flowSchema .Values.lease }}
{{- fail "lease, extraRights, labelRole, leaveCordonedNode and flowSchema are about a lease, and with store none there is none: leave them out" }}
{{- end }}
{{- if ne .Values.preset "standard" }}
{{- fail "preset is about a lease, and with store none there is none: leave it out" }}
{{- end }}
{{- end }}
{{- if or (eq .Values.store "kubernetes") (include "soloist.waits" .) }}true{{ end }}
{{- end }}
