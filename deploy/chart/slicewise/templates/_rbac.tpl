{{/* A ClusterRole and its binding to one account: `name`, `account`, `rules`, `component`, `root`. */}}
{{- define "slicewise.clusterRights" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels:
    {{- include "slicewise.labels" . | nindent 4 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "slicewise.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ include "slicewise.namespace" .root }}}
{{- end }}

{{/* The same within `namespace`. */}}
{{- define "slicewise.rights" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "slicewise.labels" . | nindent 4 }}
rules:
{{ .rules | trim }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "slicewise.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ include "slicewise.namespace" .root }}}
{{- end }}

{{/* A binding of one of Kubernetes' own roles: `role`, `kind`, `name`, and `namespace` or none. */}}
{{- define "slicewise.stockRights" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ ternary "RoleBinding" "ClusterRoleBinding" (hasKey . "namespace") }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "slicewise.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ .kind }}, name: {{ .role | quote }}}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ include "slicewise.namespace" .root }}}
{{- end }}

{{/* Reading one ConfigMap: a list that names it passes resourceNames. */}}
{{- define "slicewise.readConfigMap" -}}
- {apiGroups: [""], resources: [configmaps], resourceNames: [{{ . }}], verbs: [get, list, watch]}
{{- end }}
