{{/* Names and labels that several templates share. */}}

{{- define "bayplan.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Release name and chart name; the chart name is left out if the release name contains it. */}}
{{- define "bayplan.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "bayplan.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Cluster-scoped names contain the namespace: two releases may have the same name in two namespaces. */}}
{{- define "bayplan.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "bayplan.fullname" .) -}}
{{- end -}}

{{- define "bayplan.selectorLabels" -}}
app.kubernetes.io/name: {{ include "bayplan.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "bayplan.labels" -}}
{{ include "bayplan.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/component: scheduler
app.kubernetes.io/part-of: bayplan
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "bayplan.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "bayplan.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name must name an existing account, or set serviceAccount.create" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "bayplan.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (.Chart.AppVersion | replace "+" "_") .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate for HTTPS; empty if the operator generates one. */}}
{{- define "bayplan.servingSecret" -}}
{{- if .Values.serving.tls.certManager.enabled -}}
{{- printf "%s-serving" (include "bayplan.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- else -}}
{{- .Values.serving.tls.secretName -}}
{{- end -}}
{{- end -}}

{{/* The webhook's Service, and cert-manager's objects for it. */}}
{{- define "bayplan.webhookService" -}}
{{- printf "%s-webhook" (include "bayplan.fullname" . | trunc 55 | trimSuffix "-") -}}
{{- end -}}

{{/* Cluster-scoped, and unlike roles it must be a DNS name. */}}
{{- define "bayplan.webhookConfiguration" -}}
{{- printf "%s.%s" (include "bayplan.fullname" .) .Release.Namespace -}}
{{- end -}}

{{/* The Secret with the webhook's certificate; empty if each replica generates one. */}}
{{- define "bayplan.webhookSecret" -}}
{{- if .Values.webhook.certManager.enabled -}}
{{- include "bayplan.webhookService" . -}}
{{- else -}}
{{- .Values.webhook.secretName -}}
{{- end -}}
{{- end -}}
