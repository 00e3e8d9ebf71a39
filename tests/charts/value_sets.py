"""Values that the chart must render, as parameters of the tests."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from hack.controlplane.certificates import Authority

MONITORING: dict[str, Any] = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Scheduling"}},
}
WEBHOOK_CA = base64.b64encode(Authority().certificate.encode()).decode()
PLAIN: dict[str, Any] = {"secureServing": False, "authorizeRequests": False}
SINGLE: dict[str, Any] = {"replicaCount": 1, "settings": {"leaderElection": {"leaderElect": False}}}

VALUE_SETS = [
    pytest.param({}, id="defaults"),
    pytest.param({"replicaCount": 0}, id="stopped"),
    pytest.param({"rbac": {"userRoles": False}}, id="no roles for users"),
    pytest.param({"replicaCount": 1}, id="one replica"),
    pytest.param({"replicaCount": 3, "podDisruptionBudget": {"maxUnavailable": "50%"}}, id="three replicas"),
    pytest.param(SINGLE, id="no leader election"),
    pytest.param({"settings": {"serveAddress": ""}}, id="serves nothing"),
    pytest.param({"serving": {"tls": {"secretName": "bayplan-tls"}}}, id="own certificate"),
    pytest.param({"settings": PLAIN}, id="plain HTTP without authorization"),
    pytest.param(MONITORING | {"settings": PLAIN}, id="plain HTTP, monitored"),
    pytest.param({"settings": {"serveAddress": "[::]:8080"}, "service": {"port": 80}}, id="IPv6 and other ports"),
    pytest.param({"settings": {"namespace": "default"}}, id="revisions in another namespace"),
    pytest.param(
        {"settings": {"profiles": "tier=a"}, "defaultProfile": {"name": "a", "labels": {"tier": "a"}}},
        id="some of the profiles",
    ),
    pytest.param({"settings": {"leaderElection": {"leaseDuration": "30s"}}}, id="a longer lease"),
    pytest.param({"defaultProfile": {"enabled": False}}, id="no default profile"),
    pytest.param(
        {"defaultProfile": {"name": "batch", "spec": {"percentageOfNodesToScore": 0, "podMaxBackoffSeconds": 60}}},
        id="another default profile",
    ),
    pytest.param(MONITORING, id="monitoring"),
    pytest.param({"webhook": {"enabled": True}, "networkPolicy": {"enabled": True}}, id="webhook"),
    pytest.param(
        {
            "webhook": {
                "enabled": True,
                "port": 8443,
                "secretName": "tls",
                "caBundle": WEBHOOK_CA,
            }
        },
        id="webhook with an own certificate",
    ),
    pytest.param({"networkPolicy": {"enabled": True}}, id="network policy"),
    pytest.param(
        {
            "networkPolicy": {
                "enabled": True,
                "ingressFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
                "apiServer": {"ports": [6443], "cidrs": ["192.0.2.1/32", "2001:db8::1/128"]},
                "dnsTo": [],
                "extraIngress": [{"from": [{"podSelector": {}}], "ports": [{"port": 10259}]}],
                "extraEgress": [{"to": [{"podSelector": {"matchLabels": {"app": "extender"}}}]}],
            }
        },
        id="a narrow network policy",
    ),
    pytest.param(
        {
            "extraVolumes": [{"name": "extender", "secret": {"secretName": "extender"}}],
            "extraVolumeMounts": [
                {"name": "extender", "mountPath": "/etc/bayplan-extenders/extender", "readOnly": True}
            ],
        },
        id="more volumes",
    ),
    pytest.param(
        {
            "settings": {
                "percentageOfNodesToScore": 0,
                "clientQps": 0.5,
                "podMaxInUnschedulablePodsDuration": "5m30s",
                "logFormat": "json",
                "pluginTimeBudget": "500ms",
                "livenessLimit": 60,
                "maxWatchSilence": "10m",
            },
            "rbac": {"extraRules": [{"apiGroups": ["example.com"], "resources": ["licenses"], "verbs": ["list"]}]},
        },
        id="other settings and rights",
    ),
    pytest.param(
        {"serviceAccount": {"create": False, "name": "given"}, "rbac": {"create": False}, "service": {"create": False}},
        id="existing account and rights",
    ),
    pytest.param(
        {
            "fullnameOverride": "scheduler",
            "image": {"repository": "registry.example/bayplan", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "password"}],
            "serviceAccount": {"annotations": {"example.com/role": "scheduler"}},
            "service": {"annotations": {"prometheus.io/scrape": "true"}},
            "commonLabels": {"team": "platform"},
            "podAnnotations": {"example.com/a": "1"},
            "podLabels": {"example.com/b": "2"},
            "priorityClassName": "",
            "schedulerName": "default-scheduler",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "control-plane", "operator": "Exists"}],
            "deploymentAnnotations": {"example.com/c": "3"},
            "revisionHistoryLimit": 2,
            "runtimeClassName": "gvisor",
            "dnsPolicy": "Default",
            "crds": {"annotations": {"example.com/d": "4"}},
            "clusterSize": "large",
            "resources": {"limits": {"cpu": "2"}},
            "extraArgs": ["--log-level=debug", "-v=3"],
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "envFrom": [{"secretRef": {"name": "proxy", "optional": True}}],
            "initContainers": [{"name": "certificates", "image": "registry.example/certificates"}],
            "podAntiAffinity": "hard",
            "topologySpreadConstraints": [],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                    }
                }
            },
        },
        id="everything optional",
    ),
]
"""Values, with an id for what each row changes."""
