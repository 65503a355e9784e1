{{- define "isobar.labels" -}}
app.kubernetes.io/name: isobar
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{- define "isobar.selector" -}}
app.kubernetes.io/name: isobar
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "isobar.host" -}}
{{ .Release.Name }}.{{ .Release.Namespace }}.svc
{{- end }}
{{- define "isobar.rules" -}}
- {apiGroups: [""], resources: [services], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [isobar.dev], resources: [loadbalancingpolicies], verbs: [list, watch]}
- {apiGroups: [isobar.dev], resources: [loadbalancingpolicies/status], verbs: [patch]}
{{- end }}
{{- define "isobar.config" -}}
{{- $tls := ne .Values.tls.mode "insecure" -}}
{{- $groupOf := gt (int .Values.replicas) 1 -}}
{{- if and $groupOf (gt (len .Release.Name) 50) }}{{ fail "the name of the release may have at most 50 characters" }}{{ end -}}
{{- if and .Values.admin.tokenSecret (not $tls) }}{{ fail "admin.tokenSecret needs tls: without it, the token would be sent in plaintext" }}{{ end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.admin.tokenSecret) }}{{ fail "serviceMonitor needs admin.tokenSecret: without it, the admin interface is not reachable from outside of the Pod" }}{{ end -}}
xds:
  listen: "0.0.0.0:18000"
  {{- if $tls }}
  tls: {cert: /etc/isobar-tls/tls.crt, key: /etc/isobar-tls/tls.key, client_ca: /etc/isobar-tls/ca.crt}
  {{- else }}
  insecure: true
  {{- end }}
admin:
  {{- if and $tls .Values.admin.tokenSecret }}
  listen: "0.0.0.0:18080"
  tls: {cert: /etc/isobar-tls/tls.crt, key: /etc/isobar-tls/tls.key}
  hosts: [{{ include "isobar.host" . }}]
  token_file: /etc/isobar-token/token
  writable: {{ .Values.admin.writable }}
  {{- else }}
  listen: "127.0.0.1:18080"
  {{- end }}
state_dir: /var/lib/isobar
{{- if $groupOf }}
replicas: # the name is the host name of the Pod
  group: {{ .Release.Name }}
  listen: "0.0.0.0:18001"
  {{- if $tls }}
  {{- $dir := ternary "/etc/isobar-replica-tls" "/etc/isobar-tls" (ne .Values.tls.replicaSecret "") }}
  tls: {cert: {{ $dir }}/tls.crt, key: {{ $dir }}/tls.key, client_ca: {{ $dir }}/ca.crt}
  {{- else }}
  insecure: true
  {{- end }}
  peers:
    {{- range $i := until (int .Values.replicas) }}
    - {name: {{ $.Release.Name }}-{{ $i }}, address: "{{ $.Release.Name }}-{{ $i }}.{{ $.Release.Name }}-replicas.{{ $.Release.Namespace }}.svc:18001"}
    {{- end }}
  election:
    kubernetes: {lease: {{ .Release.Name }}}
{{- end }}
discovery:
  kubernetes:
    policies: true
    {{- with .Values.selector }}
    selector: {{ . | quote }}
    {{- end }}
    {{- with .Values.namespaces }}
    namespaces: {{ toJson . }}
    {{- end }}
{{- with .Values.config }}
{{ toYaml . }}
{{- end }}
{{- end }}
