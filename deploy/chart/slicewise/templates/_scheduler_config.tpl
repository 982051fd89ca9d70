{{/* files/extender.yaml is written from the code's own list of resources; see `make manifests`. */}}
{{- define "slicewise.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 100
leaderElection:
  leaderElect: true
  resourceNamespace: {{ include "slicewise.namespace" . }}
  resourceName: {{ .Values.scheduler.name }}
profiles:
  - schedulerName: {{ .Values.scheduler.name }}
  {{- range .Values.scheduler.otherNames }}
  - schedulerName: {{ . }}
  {{- end }}
extenders:
{{ .Files.Get "files/extender.yaml" | trim | indent 2 }}
{{- end }}

{{/* Every resource that the extender manages, as a YAML list; for admission policies. */}}
{{- define "slicewise.managedResources" -}}
{{- $extender := first (.Files.Get "files/extender.yaml" | fromYamlArray) -}}
{{- $names := list -}}
{{- range $extender.managedResources }}{{ $names = append $names .name }}{{ end -}}
{{ toYaml $names }}
{{- end }}
