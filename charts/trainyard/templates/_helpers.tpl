{{- define "trainyard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "trainyard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "trainyard.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The names of cluster-wide objects carry the namespace, so that two releases of one name do not share them. */ -}}
{{- define "trainyard.clusterName" -}}
{{- $full := include "trainyard.fullname" . -}}
{{- if eq $full .Release.Namespace -}}{{ $full }}{{- else -}}{{ printf "%s-%s" .Release.Namespace $full }}{{- end -}}
{{- end -}}

{{- define "trainyard.selectorLabels" -}}
app.kubernetes.io/name: {{ include "trainyard.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "trainyard.labels" -}}
{{ include "trainyard.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "trainyard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "trainyard.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- /* image: (dict "image" .Values.image "default" .Chart.AppVersion) */ -}}
{{- define "trainyard.image" -}}
{{- with .image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
{{- .image.repository -}}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .default }}{{ end -}}
{{- end -}}

{{- /* What the operator writes, and reads, where its jobs are. */ -}}
{{- define "trainyard.jobRules" -}}
# patch: the finalizer of jobs with checkpoint.onDelete: Delete.
- apiGroups: [trainyard.dev]
  resources: [trainingjobs]
  verbs: [list, patch, watch]
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/status]
  verbs: [update]
# Never called: the API server asks for it when a pod's owner reference says blockOwnerDeletion
# (admission plug-in OwnerReferencesPermissionEnforcement).
- apiGroups: [trainyard.dev]
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, deletecollection, get, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- /* What counts GPUs is cluster-wide in any case. */ -}}
{{- define "trainyard.clusterRules" -}}
- apiGroups: [""]
  resources: [pods, nodes]
  verbs: [list, watch]
- apiGroups: [scheduling.k8s.io]
  resources: [priorityclasses]
  verbs: [list, watch]
{{- end -}}
