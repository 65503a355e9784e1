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
log: {format: json}
discovery:
  kubernetes:
    policies: true
    {{- with .Values.selector }}
    selector: {{ . | quote }}
    {{- end }}
    {{- with .Values.namespaces }}
    namespaces: {{ toJson . }}
    {{- end }}
{{- with omit .Values.config "log" }}
{{ toYaml . }}
{{- end }}
{{- end }}
