{{/* The settings of the operator, and values derived from them that several objects use. */}}

{{/* The settings file. Null values are removed, so the operator's defaults apply; Helm 3 does not remove them by itself. */}}
{{- define "bayplan.settings" -}}
{{- $given := dict -}}
{{- range $name, $value := .Values.settings -}}
{{- if kindIs "map" $value -}}
{{- $fields := dict -}}
{{- range $field, $inner := $value -}}
{{- if not (kindIs "invalid" $inner) -}}
{{- $_ := set $fields $field $inner -}}
{{- end -}}
{{- end -}}
{{- $_ := set $given $name $fields -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $given $name $value -}}
{{- end -}}
{{- end -}}
{{- if include "bayplan.servingSecret" . -}}
{{- $_ := set $given "tlsCertFile" "/etc/bayplan-tls/tls.crt" -}}
{{- $_ := set $given "tlsPrivateKeyFile" "/etc/bayplan-tls/tls.key" -}}
{{- end -}}
{{- if .Values.webhook.enabled -}}
{{- $host := regexReplaceAll "[0-9]+$" (default "0.0.0.0:0" .Values.settings.serveAddress) "" -}}
{{- $webhook := dict "address" (printf "%s%d" $host (int .Values.webhook.port)) -}}
{{- if include "bayplan.webhookSecret" . -}}
{{- $_ := set $webhook "tlsCertFile" "/etc/bayplan-webhook/tls.crt" -}}
{{- $_ := set $webhook "tlsPrivateKeyFile" "/etc/bayplan-webhook/tls.key" -}}
{{- else -}}
{{- $_ := set $webhook "configuration" (include "bayplan.webhookConfiguration" .) -}}
{{- end -}}
{{- $_ := set $given "webhook" $webhook -}}
{{- end -}}
{{- toYaml $given -}}
{{- end -}}

{{/* Name of the Lease as bayplan/settings computes it: each selector of profiles has its own Lease. */}}
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

{{/* The port of the operator's server; empty if it serves nothing. */}}
{{- define "bayplan.servePort" -}}
{{- regexFind "[0-9]+$" (default "" .Values.settings.serveAddress) -}}
{{- end -}}

{{/* The port for local requests, to which kubectl port-forward connects; empty if there is none. */}}
{{- define "bayplan.localPort" -}}
{{- regexFind "[0-9]+$" (default "" .Values.settings.localAddress) -}}
{{- end -}}

{{/* HTTP or HTTPS, in the notation of probes. */}}
{{- define "bayplan.serveScheme" -}}
{{- if or .Values.settings.secureServing .Values.settings.tlsCertFile (include "bayplan.servingSecret" .) -}}HTTPS{{- else -}}HTTP{{- end -}}
{{- end -}}

{{/* Name of the port: service meshes read the protocol from its prefix. */}}
{{- define "bayplan.portName" -}}
{{- include "bayplan.serveScheme" . | lower -}}
{{- end -}}

{{/* Whether commands in the pod of a standby query the leader: there are several replicas, and the leader can review their token. */}}
{{- define "bayplan.followsLeader" -}}
{{- if and .Values.settings.leaderElection.leaderElect .Values.settings.authorizeRequests .Values.settings.serveAddress -}}true{{- end -}}
{{- end -}}

{{/* Rules between values, which a schema cannot express. */}}
{{- define "bayplan.checkValues" -}}
{{- include "bayplan.checkSettings" . -}}
{{- include "bayplan.checkElection" . -}}
{{- include "bayplan.checkServing" . -}}
{{- include "bayplan.checkMonitoring" . -}}
{{- include "bayplan.checkWebhook" . -}}
{{- end -}}

{{- define "bayplan.checkSettings" -}}
{{- $settings := .Values.settings -}}
{{- if gt (int64 $settings.podInitialBackoffSeconds) (int64 $settings.podMaxBackoffSeconds) -}}
{{- fail "settings.podMaxBackoffSeconds must be at least settings.podInitialBackoffSeconds" -}}
{{- end -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (float64 $settings.gracefulStopSeconds) -}}
{{- fail "terminationGracePeriodSeconds must be more than settings.gracefulStopSeconds, or the kubelet ends the operator before its last binds" -}}
{{- end -}}
{{- if and $settings.authorizeRequests (eq (include "bayplan.serveScheme" .) "HTTP") -}}
{{- fail "settings.authorizeRequests requires settings.secureServing: tokens must not be sent unencrypted" -}}
{{- end -}}
{{- if and .Values.service.create $settings.serveAddress -}}
{{- if or (hasPrefix "127." $settings.serveAddress) (hasPrefix "localhost:" $settings.serveAddress) (hasPrefix "[::1]:" $settings.serveAddress) -}}
{{- fail "settings.serveAddress is loopback, where neither probes nor the Service reach it: use 0.0.0.0:10260" -}}
{{- end -}}
{{- end -}}
{{- if and $settings.serveAddress $settings.localAddress (eq (include "bayplan.servePort" .) (include "bayplan.localPort" .)) -}}
{{- fail (printf "settings.localAddress must have another port than settings.serveAddress, not %s: both are loopback for a sidecar proxy" (include "bayplan.localPort" .)) -}}
{{- end -}}
{{- $profile := .Values.defaultProfile -}}
{{- if and $profile.enabled (not $settings.allowDefaultScheduler) (eq (default $profile.name $profile.spec.schedulerName) "default-scheduler") -}}
{{- fail "defaultProfile.name must not be default-scheduler, which kube-scheduler serves: choose another, or set settings.allowDefaultScheduler where kube-scheduler does not run" -}}
{{- end -}}
{{- end -}}

{{/* Of several replicas only one may bind, the holder of the Lease for which the chart grants permissions. */}}
{{- define "bayplan.checkElection" -}}
{{- $election := .Values.settings.leaderElection -}}
{{- if not $election.leaderElect -}}
{{- if gt (int .Values.replicaCount) 1 -}}
{{- fail (printf "replicaCount must be 1 or 0, not %d, while settings.leaderElection.leaderElect is false: every process would bind" (int .Values.replicaCount)) -}}
{{- end -}}
{{- else -}}
{{- if and $election.resourceNamespace (ne $election.resourceNamespace (include "bayplan.revisionNamespace" .)) -}}
{{- fail "settings.leaderElection.resourceNamespace must be unset: the chart grants permissions for the Lease in the namespace of the revisions only" -}}
{{- end -}}
{{- /* Durations given as text are compared by the operator at startup. */ -}}
{{- if not (or (kindIs "string" $election.leaseDuration) (kindIs "string" $election.renewDeadline)) -}}
{{- if le (float64 $election.leaseDuration) (float64 $election.renewDeadline) -}}
{{- fail "settings.leaderElection.leaseDuration must be more than settings.leaderElection.renewDeadline, or a standby takes over from a leader that still binds" -}}
{{- end -}}
{{- end -}}
{{- $both := printf "%v/%v" .Values.rollingUpdate.maxSurge .Values.rollingUpdate.maxUnavailable -}}
{{- if regexMatch "^0%?/0%?$" $both -}}
{{- fail "rollingUpdate.maxSurge and rollingUpdate.maxUnavailable must not both be 0: no update could start" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A served certificate has one source, and a certificate of cert-manager is for the name of the Service. */}}
{{- define "bayplan.checkServing" -}}
{{- if .Values.serving.tls.certManager.enabled -}}
{{- if .Values.serving.tls.secretName -}}
{{- fail "serving.tls.secretName must be unset while serving.tls.certManager.enabled is true: cert-manager creates the Secret" -}}
{{- end -}}
{{- if not .Values.settings.serveAddress -}}
{{- fail "serving.tls.certManager.enabled needs settings.serveAddress: without it no certificate is used" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A scraped endpoint must be served. */}}
{{- define "bayplan.checkMonitoring" -}}
{{- if .Values.serviceMonitor.enabled -}}
{{- if not .Values.settings.serveAddress -}}
{{- fail "serviceMonitor.enabled needs settings.serveAddress: without it no metrics are served" -}}
{{- end -}}
{{- if not .Values.service.create -}}
{{- fail "serviceMonitor.enabled needs service.create: a ServiceMonitor selects the replicas by their Service" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The webhook's certificate has one source. */}}
{{- define "bayplan.checkWebhook" -}}
{{- $webhook := .Values.webhook -}}
{{- if and $webhook.certManager.enabled $webhook.secretName -}}
{{- fail "webhook.secretName must be unset while webhook.certManager.enabled is true: cert-manager creates the Secret" -}}
{{- end -}}
{{- if and $webhook.caBundle (not $webhook.secretName) -}}
{{- fail "webhook.caBundle needs webhook.secretName: generated certificates and those of cert-manager add their own" -}}
{{- end -}}
{{- if and $webhook.enabled (eq (int $webhook.port) (int (include "bayplan.servePort" . | default "0"))) -}}
{{- fail (printf "webhook.port must differ from the port of settings.serveAddress, %d" (int $webhook.port)) -}}
{{- end -}}
{{- end -}}
