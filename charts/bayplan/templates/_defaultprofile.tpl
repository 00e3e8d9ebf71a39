{{/* The default profile, and who creates it. */}}

{{/*
Whether the operator creates the profile, because Helm cannot: it checks the kinds of all objects before it creates the
first one, the definition. The next upgrade renders the profile as an object of the release, and adopts it.
*/}}
{{- define "bayplan.operatorCreatesProfile" -}}
{{- if and .Values.defaultProfile.enabled .Values.crds.enabled (not (.Capabilities.APIVersions.Has "bayplan.dev/v1alpha1/SchedulerProfile")) -}}true{{- end -}}
{{- end -}}

{{- define "bayplan.defaultProfile" -}}
apiVersion: bayplan.dev/v1alpha1
kind: SchedulerProfile
metadata:
  name: {{ .Values.defaultProfile.name }}
  labels:
    {{- include "bayplan.labels" . | nindent 4 }}
    {{- with .Values.defaultProfile.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    # Pods use it: it outlives the release, as the CRDs do, and a release of the same name adopts it again.
    helm.sh/resource-policy: keep
    {{- if include "bayplan.operatorCreatesProfile" . }}
    meta.helm.sh/release-name: {{ .Release.Name }}
    meta.helm.sh/release-namespace: {{ .Release.Namespace }}
    {{- end }}
spec:
  {{- toYaml .Values.defaultProfile.spec | nindent 2 }}
{{- end -}}
