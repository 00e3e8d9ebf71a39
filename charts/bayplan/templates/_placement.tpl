{{/* Affinity and topology spread constraints of the replicas. */}}

{{/* The affinity of the values, with pod anti-affinity between the replicas unless the values contain one. */}}
{{- define "bayplan.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if and (ne .Values.podAntiAffinity "none") (not (hasKey $affinity "podAntiAffinity")) -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "bayplan.selectorLabels" . | fromYaml)) -}}
{{- if eq .Values.podAntiAffinity "hard" -}}
{{- $_ := set $affinity "podAntiAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- else -}}
{{- $preferred := dict "weight" 100 "podAffinityTerm" $term -}}
{{- $_ := set $affinity "podAntiAffinity" (dict "preferredDuringSchedulingIgnoredDuringExecution" (list $preferred)) -}}
{{- end -}}
{{- end -}}
{{- with $affinity -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The constraints of the values. One without selector gets that of the replicas of one revision of the Deployment. */}}
{{- define "bayplan.topologySpreadConstraints" -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraint := deepCopy . -}}
{{- if not (hasKey $constraint "labelSelector") -}}
{{- $_ := set $constraint "labelSelector" (dict "matchLabels" (include "bayplan.selectorLabels" $ | fromYaml)) -}}
{{- $_ := set $constraint "matchLabelKeys" (list "pod-template-hash") -}}
{{- end -}}
{{- $constraints = append $constraints $constraint -}}
{{- end -}}
{{- with $constraints -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}
