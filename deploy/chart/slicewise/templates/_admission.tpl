{{/* How pods are changed: by policy, by webhook, or off. */}}
{{- define "slicewise.mutation" -}}
{{- $api := "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- $can := or (ge (int (include "slicewise.minor" .)) 36) (.Capabilities.APIVersions.Has $api) -}}
{{- $value := .Values.admission.mutation -}}
{{- if and (eq $value "policy") (not $can) }}
{{- fail "admission.mutation: policies that change pods need Kubernetes 1.36; set it to auto or webhook" }}
{{- end }}
{{- if eq $value "auto" }}{{ ternary "policy" "webhook" $can }}{{ else }}{{ $value }}{{ end -}}
{{- end }}

{{/* How requests are refused: by policy, by webhook, or off. */}}
{{- define "slicewise.validation" -}}
{{- $api := "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- $can := or (ge (int (include "slicewise.minor" .)) 30) (.Capabilities.APIVersions.Has $api) -}}
{{- $value := .Values.admission.validation -}}
{{- if and (eq $value "policy") (not $can) }}
{{- fail "admission.validation: policies that refuse need Kubernetes 1.30; set it to auto or webhook" }}
{{- end }}
{{- if eq $value "auto" }}{{ ternary "policy" "webhook" $can }}{{ else }}{{ $value }}{{ end -}}
{{- end }}

{{/* The policies that are wanted, each by its short name with policy or webhook. */}}
{{- define "slicewise.admissionModes" -}}
{{- $admission := .Values.admission -}}
{{- $mutation := include "slicewise.mutation" . -}}
{{- $validation := include "slicewise.validation" . -}}
{{- $modes := dict -}}
{{- if ne $mutation "off" }}
{{- if eq .Values.scheduler.mode "own" }}{{ $_ := set $modes "scheduler-name" $mutation }}{{ end }}
{{- if .Values.agent.enabled }}{{ $_ := set $modes "carrier" $mutation }}{{ end }}
{{- /* Clusters that have claims of ours evaluate policies. */}}
{{- if and .Values.extender.dra (eq $mutation "policy") }}{{ $_ := set $modes "claims" $mutation }}{{ end }}
{{- end }}
{{- if ne $validation "off" }}
{{- if $admission.marks }}{{ $_ := set $modes "marks" $validation }}{{ end }}
{{- if $admission.nodeName }}{{ $_ := set $modes "node-name" $validation }}{{ end }}
{{- if $admission.requests }}{{ $_ := set $modes "requests" $validation }}{{ end }}
{{- /* The tokens of agents name their node from 1.30 on. */}}
{{- if and $admission.agents .Values.agent.enabled (ge (int (include "slicewise.minor" .)) 30) }}{{ $_ := set $modes "agents" $validation }}{{ end }}
{{- if $admission.visibleDevices }}{{ $_ := set $modes "visible-devices" $validation }}{{ end }}
{{- end }}
{{- toYaml $modes }}
{{- end }}

{{/* "true" where anything is asked of the webhook. */}}
{{- define "slicewise.hasWebhook" -}}
{{- has "webhook" (values (include "slicewise.admissionModes" . | fromYaml)) -}}
{{- end }}

{{- define "slicewise.webhookName" -}}
{{- include "slicewise.componentName" (dict "root" . "component" "webhook") -}}
{{- end }}

{{- define "slicewise.webhookTlsSecret" -}}
{{- if eq .Values.certificates.mode "secret" }}{{ .Values.certificates.secret.webhook }}
{{- else }}{{ include "slicewise.webhookName" . }}-tls{{ end -}}
{{- end }}
