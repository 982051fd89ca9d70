{{/* The extender's container: beside the scheduler on loopback, or on its own with TLS. */}}
{{- define "slicewise.extenderContainer" -}}
{{- $beside := eq .Values.scheduler.mode "own" -}}
name: extender
{{ include "slicewise.ownImage" (dict "root" . "component" "extender") }}
args:
  - extender
  - --address={{ ternary "127.0.0.1" "0.0.0.0" $beside }}:3456
  - --health-address=0.0.0.0:{{ .Values.extender.healthPort }}
  - --lease={{ include "slicewise.extenderLease" . }}
  {{- if $beside }}
  - --follow-lease={{ include "slicewise.schedulerLease" . }}
  {{- else }}
  {{- range include "slicewise.leaderServices" . | fromYamlArray }}
  - --leader-service={{ include "slicewise.namespace" $ }}/{{ . }}
  {{- end }}
  {{- if .Values.extender.insecure }}
  - --insecure
  {{- else }}
  - --tls-cert=/etc/slicewise/tls/tls.crt
  - --tls-key=/etc/slicewise/tls/tls.key
  {{- end }}
  {{- if .Values.certificates.clientCaSecret }}
  - --tls-client-ca=/etc/slicewise/client-ca/ca.crt
  {{- end }}
  {{- end }}
  - --policy={{ .Values.policy }}
  - --quota-configmap={{ .Values.quota.configMap }}
  {{- with include "slicewise.quotaLabels" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if not .Values.preemption.evict }}
  - --no-evict
  {{- end }}
  {{- if gt (float64 .Values.fairness.afterSeconds) 0.0 }}
  - --fair-after={{ .Values.fairness.afterSeconds }}
  - --fair-for={{ .Values.fairness.forSeconds }}
  {{- end }}
  - --trust-configmap={{ .Values.trust.configMap }}
  {{- if .Values.trust.signingKey.secretName }}
  - --signing-key=/etc/slicewise/signing/{{ .Values.trust.signingKey.key }}
  {{- else }}
  - --signing-secret={{ include "slicewise.signingSecret" . }}
  {{- end }}
  {{- if .Values.trust.takeOver }}
  - --take-over
  {{- end }}
  {{- if .Values.extender.dra }}
  - --dra
  {{- end }}
  - --log-level={{ .Values.logLevel }}
  {{- with .Values.extender.args }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- include "slicewise.ownPod" . | nindent 2 }}
  {{- with .Values.extender.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  {{- if not $beside }}
  - {name: extender, containerPort: 3456}
  {{- end }}
  - {name: health, containerPort: {{ .Values.extender.healthPort }}}
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: health}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
resources:
  {{- toYaml .Values.extender.resources | nindent 2 }}
securityContext:
  {{- toYaml .Values.extender.securityContext | nindent 2 }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if .Values.trust.signingKey.secretName }}
  - {name: signing, mountPath: /etc/slicewise/signing, readOnly: true}
  {{- end }}
  {{- if and (not $beside) (not .Values.extender.insecure) }}
  - {name: tls, mountPath: /etc/slicewise/tls, readOnly: true}
  {{- end }}
  {{- if and (not $beside) .Values.certificates.clientCaSecret }}
  - {name: client-ca, mountPath: /etc/slicewise/client-ca, readOnly: true}
  {{- end }}
{{- end }}

{{/* The Services that lead to the deciding replica alone, which writes their EndpointSlices. */}}
{{- define "slicewise.leaderServices" -}}
- {{ include "slicewise.componentName" (dict "root" . "component" "extender") }}
{{- if .Values.compatibility.gpushare.enabled }}
- gpushare-schd-extender
{{- end }}
{{- if .Values.compatibility.elasticGpu.enabled }}
- elastic-gpu-scheduler
{{- end }}
{{- end }}

{{- define "slicewise.extenderVolumes" -}}
- name: tmp
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
{{- if .Values.trust.signingKey.secretName }}
- name: signing
  secret: {secretName: {{ .Values.trust.signingKey.secretName }}}
{{- end }}
{{- if eq .Values.scheduler.mode "existing" }}
{{- if not .Values.extender.insecure }}
- name: tls
  secret: {secretName: {{ include "slicewise.extenderTlsSecret" . }}}
{{- end }}
{{- with .Values.certificates.clientCaSecret }}
- name: client-ca
  secret: {secretName: {{ . }}}
{{- end }}
{{- end }}
{{- end }}

{{- define "slicewise.extenderTlsSecret" -}}
{{- if eq .Values.certificates.mode "secret" }}{{ .Values.certificates.secret.extender }}
{{- else }}{{ include "slicewise.componentName" (dict "root" . "component" "extender") }}-tls{{ end -}}
{{- end }}
