{{/*
Names. Every template takes the root, or a dict of `root` and `component`, where a component is
one of extender, scheduler, agent, metrics-api, dashboard and webhook.
*/}}

{{- define "slicewise.name" -}}
{{- .Values.nameOverride | default "slicewise" | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "slicewise.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{- define "slicewise.componentName" -}}
{{- printf "%s-%s" (include "slicewise.name" .root) .component -}}
{{- end }}

{{/* The block of values of a component. */}}
{{- define "slicewise.key" -}}
{{- if eq .component "metrics-api" }}metricsApi{{ else }}{{ .component }}{{ end -}}
{{- end }}

{{/* The name of a component's ServiceAccount. */}}
{{- define "slicewise.serviceAccountName" -}}
{{- $account := (get .root.Values (include "slicewise.key" .)).serviceAccount -}}
{{- if $account.name }}{{ $account.name }}
{{- else if $account.create }}{{ include "slicewise.componentName" . }}
{{- else }}default{{ end -}}
{{- end }}

{{/* The pod that the extender runs in: beside its scheduler, or on its own. */}}
{{- define "slicewise.extenderComponent" -}}
{{- if eq .Values.scheduler.mode "own" }}scheduler{{ else }}extender{{ end -}}
{{- end }}

{{/* The account that the extender acts as: a pod has one for all its containers. */}}
{{- define "slicewise.extenderAccount" -}}
{{- $component := include "slicewise.extenderComponent" . -}}
{{- include "slicewise.serviceAccountName" (dict "root" . "component" $component) -}}
{{- end }}

{{/* Service, Secret and certificate of the metrics API have one name. */}}
{{- define "slicewise.metricsApiName" -}}
{{- if .Values.compatibility.nvidiaGpuScheduler.enabled }}nvidia-gpu-scheduler
{{- else }}{{ include "slicewise.componentName" (dict "root" . "component" "metrics-api") }}{{ end -}}
{{- end }}

{{/* namespace/name of objects that several components follow. */}}
{{- define "slicewise.signingSecret" -}}
{{- .Values.trust.signingSecret | default (printf "%s/slicewise-signing" (include "slicewise.namespace" .)) -}}
{{- end }}

{{- define "slicewise.schedulerLease" -}}
{{- printf "%s/%s" (include "slicewise.namespace" .) .Values.scheduler.name -}}
{{- end }}

{{- define "slicewise.extenderLease" -}}
{{- printf "%s/%s-extender" (include "slicewise.namespace" .) (include "slicewise.name" .) -}}
{{- end }}

{{/* The public authority of our own servers, which the metrics API writes. */}}
{{- define "slicewise.caConfigMap" -}}
{{- printf "%s-ca" (include "slicewise.name" .) -}}
{{- end }}

{{/*
Labels: all eight on objects, and the three that never change in selectors.
*/}}

{{- define "slicewise.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slicewise.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "slicewise.labels" -}}
{{ include "slicewise.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: slicewise
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Images: `image` of a component completes the common one.
*/}}

{{- define "slicewise.image" -}}
{{- $registry := .root.Values.global.imageRegistry | default .image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest }}{{ printf "%s@%s" $name .image.digest }}
{{- else }}{{ printf "%s:%s" $name (.image.tag | default .tag) }}{{ end -}}
{{- end }}

{{- define "slicewise.ownImage" -}}
{{- $own := get .root.Values (include "slicewise.key" .) -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) ($own.image | default dict) -}}
image: {{ include "slicewise.image" (dict "root" .root "image" $image "tag" .root.Chart.AppVersion) }}
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{/* The scheduler is of the cluster's own version, without what distributions add to it. */}}
{{- define "slicewise.schedulerImage" -}}
{{- $tag := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
image: {{ include "slicewise.image" (dict "root" . "image" .Values.scheduler.image "tag" $tag) }}
imagePullPolicy: {{ .Values.scheduler.image.pullPolicy }}
{{- end }}

{{/*
Pods.
*/}}

{{/* What all our pods say of themselves beside their containers. */}}
{{- define "slicewise.podSettings" -}}
{{- $own := get .root.Values (include "slicewise.key" .) -}}
serviceAccountName: {{ include "slicewise.serviceAccountName" . }}
{{- with concat .root.Values.global.imagePullSecrets .root.Values.imagePullSecrets }}
imagePullSecrets:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $own.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $theirs := ternary .root.Values.nodeSelectorDaemonSet dict (eq .component "agent") }}
{{- with $theirs | default $own.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $own.tolerations }}
tolerations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $own.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
{{- $spread := deepCopy . }}
{{- if not (hasKey $spread "labelSelector") }}
{{- $labels := include "slicewise.selectorLabels" $ | fromYaml }}
{{- $_ := set $spread "labelSelector" (dict "matchLabels" $labels) }}
{{- end }}
{{ toYaml (list $spread) | indent 2 }}
{{- end }}
{{- end }}
securityContext:
{{ toYaml $own.podSecurityContext | indent 2 }}
{{- end }}

{{- define "slicewise.podMetadata" -}}
{{- $own := get .root.Values (include "slicewise.key" .) -}}
labels:
{{ include "slicewise.labels" . | indent 2 }}
{{- with $own.podLabels }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- $annotations := merge (deepCopy (.checksums | default dict)) $own.podAnnotations }}
{{- with $annotations }}
annotations:
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}

{{/* The extender needs to know its own pod. */}}
{{- define "slicewise.ownPod" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end }}

{{/*
Capabilities: what the cluster serves, unless a value says otherwise.
*/}}

{{/* "true" when `value` is on, or auto and the API version is served. */}}
{{- define "slicewise.serves" -}}
{{- $value := toString .value -}}
{{- if eq $value "auto" }}{{ .root.Capabilities.APIVersions.Has .api }}
{{- else }}{{ $value }}{{ end -}}
{{- end }}

{{/* The cluster's minor version as a number, as in 36 of v1.36.4-gke.100. */}}
{{- define "slicewise.minor" -}}
{{- regexFind "[0-9]+" .Capabilities.KubeVersion.Minor -}}
{{- end }}

{{/* The flags of the labels by which the quota names models and pools, where they are given. */}}
{{- define "slicewise.quotaLabels" -}}
{{- with .Values.quota.modelLabel }}
- --model-label={{ . }}
{{- end }}
{{- with .Values.quota.poolLabel }}
- --pool-label={{ . }}
{{- end }}
{{- end }}
