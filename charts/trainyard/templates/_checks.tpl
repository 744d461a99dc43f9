{{- /* What the schema cannot see: values that contradict each other. Each would be a pod that crashes, or a refusal later. */ -}}

{{- define "trainyard.milliseconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 -}}
{{- mul (regexFind "^[0-9]+" .) (get $units (regexFind "[a-z]+$" .)) -}}
{{- end -}}

{{- /* A preset by name, or a list of {name, label} as the flag takes it. */ -}}
{{- define "trainyard.topology" -}}
{{- if kindIs "string" .Values.topology -}}
{{- .Values.topology -}}
{{- else -}}
{{- range $i, $level := .Values.topology -}}
{{- if $i -}},{{- end -}}
{{- $level.name }}={{ $level.label -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "trainyard.checks" -}}
{{- with .Values.leaderElection -}}
{{- if and (gt (int $.Values.replicas) 1) (not .enabled) -}}
{{- fail (printf "replicas: %d replicas need leaderElection.enabled=true, or all of them would act on the same jobs" (int $.Values.replicas)) -}}
{{- end -}}
{{- $lease := include "trainyard.milliseconds" .leaseDuration | int64 -}}
{{- $renew := include "trainyard.milliseconds" .renewDeadline | int64 -}}
{{- $retry := include "trainyard.milliseconds" .retryPeriod | int64 -}}
{{- if not (and (gt $lease $renew) (gt $renew $retry)) -}}
{{- fail (printf "leaderElection: leaseDuration (%s) must be longer than renewDeadline (%s), and that longer than retryPeriod (%s)" .leaseDuration .renewDeadline .retryPeriod) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.enabled (eq (int .Values.metrics.port) (int .Values.probes.port)) -}}
{{- fail (printf "metrics.port and probes.port are both %d; give each its own" (int .Values.metrics.port)) -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and .enabled (gt (int $.Values.replicas) 1) (not (kindIs "string" .minAvailable)) (ge (int .minAvailable) (int $.Values.replicas)) -}}
{{- fail (printf "podDisruptionBudget.minAvailable: %d of %d replicas may never be missing, so that no node could be drained; make it smaller" (int .minAvailable) (int $.Values.replicas)) -}}
{{- end -}}
{{- end -}}
{{- $own := list "namespace" "leader-elect" "leader-election-namespace" "leader-election-id" "lease-duration" "renew-deadline" "retry-period" "kube-api-qps" "kube-api-burst" "workers" "parallel-creates" "metrics-bind-address" "health-probe-bind-address" "trainer-image" "catalogue" "topology" "fabric-profiles" "cpu-per-gpu" "memory-per-gpu" "log-level" "log-format" -}}
{{- range .Values.extraArgs -}}
{{- $name := regexReplaceAll "=.*$" (trimPrefix "--" .) "" -}}
{{- if has (trimPrefix "no-" $name) $own -}}
{{- fail (printf "extraArgs: --%s is set by a value of its own; see values.yaml" $name) -}}
{{- end -}}
{{- end -}}
{{- $selector := include "trainyard.selectorLabels" . | fromYaml -}}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "podLabels" .Values.podLabels -}}
{{- range $key, $_ := $labels -}}
{{- if hasKey $selector $key -}}
{{- fail (printf "%s: %s selects the operator's pods and cannot be given" $where $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
