{{/* Resources of the container: those of clusterSize, overridden by the value resources. */}}
{{- define "bayplan.resources" -}}
{{- $sizes := dict
  "small" (dict "cpu" "250m" "memory" "256Mi" "limit" "1Gi")
  "medium" (dict "cpu" "500m" "memory" "768Mi" "limit" "2Gi")
  "large" (dict "cpu" "1" "memory" "2Gi" "limit" "6Gi") -}}
{{- $resources := dict -}}
{{- with get $sizes .Values.clusterSize -}}
{{- $resources = dict "requests" (dict "cpu" .cpu "memory" .memory) "limits" (dict "memory" .limit) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $resources (deepCopy .Values.resources)) -}}
{{- end -}}
