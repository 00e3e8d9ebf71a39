{{/* The settings of the operator, and what more than one object takes from them. */}}

{{/* The settings file: values that are null are left out, so that the operator's own defaults hold. */}}
{{- define "bayplan.settings" -}}
{{- $given := dict -}}
{{- range $name, $value := .Values.settings -}}
{{- if not (kindIs "invalid" $value) -}}
{{- $_ := set $given $name $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}

{{/* The Lease: as bayplan/settings.py names it, so that each selection of profiles has one of its own. */}}
{{- define "bayplan.leaseName" -}}
{{- $settings := .Values.settings -}}
{{- if $settings.leaderElection.resourceName -}}
{{- $settings.leaderElection.resourceName -}}
{{- else if $settings.profiles -}}
{{- printf "bayplan-%s" (trim $settings.profiles | sha256sum | trunc 8) -}}
{{- else -}}
bayplan
{{- end -}}
{{- end -}}

{{/* The namespace of ControllerRevisions. */}}
{{- define "bayplan.revisionNamespace" -}}
{{- default .Release.Namespace .Values.settings.namespace -}}
{{- end -}}

{{/* The port that the operator listens on; empty when it serves nothing. */}}
{{- define "bayplan.servePort" -}}
{{- regexFind "[0-9]+$" (default "" .Values.settings.serveAddress) -}}
{{- end -}}

{{/* Rules between values, which a schema cannot say. */}}
{{- define "bayplan.checkValues" -}}
{{- $settings := .Values.settings -}}
{{- if gt (int64 $settings.podInitialBackoffSeconds) (int64 $settings.podMaxBackoffSeconds) -}}
{{- fail "settings.podMaxBackoffSeconds must be at least settings.podInitialBackoffSeconds" -}}
{{- end -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (float64 $settings.gracefulStopSeconds) -}}
{{- fail "terminationGracePeriodSeconds must be more than settings.gracefulStopSeconds, or the kubelet ends the operator before its last binds" -}}
{{- end -}}
{{- $election := $settings.leaderElection -}}
{{- if and $election.leaderElect $election.resourceNamespace (ne $election.resourceNamespace (include "bayplan.revisionNamespace" .)) -}}
{{- fail "settings.leaderElection.resourceNamespace must be left out: the chart grants rights to the Lease in the namespace of the revisions only" -}}
{{- end -}}
{{- if and .Values.service.create $settings.serveAddress -}}
{{- if or (hasPrefix "127." $settings.serveAddress) (hasPrefix "localhost:" $settings.serveAddress) (hasPrefix "[::1]:" $settings.serveAddress) -}}
{{- fail "settings.serveAddress is loopback, where neither probes nor the Service reach it: use 0.0.0.0:10259" -}}
{{- end -}}
{{- end -}}
{{- end -}}
