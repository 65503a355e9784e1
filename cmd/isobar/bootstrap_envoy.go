package main

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/config"
)

// envoyFlags are those of files for Envoy alone.
type envoyFlags struct {
	services     []string
	checks       bool
	listener     string
	fetchTimeout time.Duration
}

// envoyFile is what the templates of files for Envoy are given.
type envoyFile struct {
	bootstrap

	WithoutNode  bool
	Services     []string // clusters made here instead of by CDS
	Checks       bool
	Listener     *envoyListener // nil: none
	FetchTimeout string         // of the first answer, as Envoy writes durations
}

type envoyListener struct {
	Host string
	Port uint16
}

func bootstrapEnvoyCommand() *cobra.Command {
	var flags bootstrapFlags
	var besides besideFlags
	var envoy envoyFlags
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Print a bootstrap file for Envoy (YAML)",
		Long: `Print a bootstrap file for Envoy: clusters and endpoints over ADS, load reports
over LRS. Add your own listeners under static_resources. With --service, the
clusters are in the file, and only their endpoints come from the server. With
--listener, the file has a listener for a first test.

An Envoy that starts while the server is down accepts no connections until the
server is back. With --initial-fetch-timeout 15s, which is Envoy's own default,
it accepts connections after 15 seconds, has no endpoints, and answers 503.

Envoy expands no variables in the file. If several Envoys share a file, start
each with --service-node NAME, which overrides the node id in the file.

With --beside, the command prints an addition to the bootstrap file of Envoys that have
another control plane: the cluster "isobar", and load reports to it. That control
plane then gives its clusters an eds_config that names the cluster "isobar". With
--without-node, the addition has no node, for Envoys whose agent writes it, as Istio's
does.`,
		Example: "  isobar bootstrap envoy --cluster shop --locality us-east/b > envoy.yaml\n" +
			"  isobar bootstrap envoy --locality us-east/b --listener 10000 > envoy.yaml\n" +
			"  isobar bootstrap envoy --locality us-east/b --service checkout --service payment\n" +
			"  isobar bootstrap envoy --beside --locality us-east/b\n" +
			"  isobar bootstrap envoy --beside --without-node --server isobar.isobar.svc:18000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if flags.withoutNode && !besides.beside {
				return usagef("--without-node requires --beside: other bootstrap files need the node, with the ID and the locality of the Envoy")
			}
			b, err := flags.check()
			if err != nil {
				return err
			}
			file, err := envoy.check(b, besides.beside)
			if err != nil {
				return err
			}
			file.WithoutNode = flags.withoutNode
			if strings.Contains(b.NodeID, "$") {
				cmd.PrintErrf("warning: --node-id %q: Envoy does not expand variables; start each Envoy with --service-node NAME, "+
					"or all that read this file are one node to Isobar\n", b.NodeID)
			}
			if besides.beside {
				return envoyFragment.Execute(cmd.OutOrStdout(), file)
			}
			return envoyBootstrap.Execute(cmd.OutOrStdout(), file)
		},
	}
	flags.register(cmd)
	besides.register(cmd)
	envoy.register(cmd)
	cmd.Flags().BoolVar(&flags.withoutNode, "without-node", false, "with --beside: omit the node, for Envoys whose agent writes it")
	cmd.MarkFlagsMutuallyExclusive("without-node", "locality")
	cmd.MarkFlagsMutuallyExclusive("without-node", "node-id")
	cmd.MarkFlagsMutuallyExclusive("without-node", "cluster")
	cmd.MarkFlagsMutuallyExclusive("without-node", "node-name")
	cmd.MarkFlagsMutuallyExclusive("without-node", "from-env")
	return cmd
}

func (f *envoyFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVar(&f.services, "service", nil, "a service whose cluster is in the file; repeatable; without it all clusters come over CDS")
	fs.BoolVar(&f.checks, "checks", false, "also let the Envoys probe endpoints for Isobar (hds_config)")
	fs.StringVar(&f.listener, "listener", "", "[HOST:]PORT of a listener for a first test, which routes by the Host header; the default HOST is 127.0.0.1")
	fs.DurationVar(&f.fetchTimeout, "initial-fetch-timeout", 0,
		"how long a starting Envoy waits for the server before it continues without clusters and endpoints; 0 = until they come")
}

// check returns what the templates are given, or what is wrong with the flags.
func (f *envoyFlags) check(b bootstrap, beside bool) (envoyFile, error) {
	file := envoyFile{bootstrap: b, Services: f.services, Checks: f.checks}
	for _, s := range f.services {
		if strings.TrimSpace(s) == "" {
			return file, usagef("--service %q: want a service's name", s)
		}
		if s == managementCluster {
			return file, usagef("--service %s: the cluster of the management server has this name", s)
		}
	}
	switch {
	case f.fetchTimeout < 0:
		return file, usagef("--initial-fetch-timeout %s: want 0 or more", f.fetchTimeout)
	case beside && len(f.services) > 0:
		return file, usagef("--service does not go with --beside: the other control plane gives the clusters")
	case beside && f.listener != "":
		return file, usagef("--listener does not go with --beside: the other control plane gives the listeners")
	}
	file.FetchTimeout = strconv.FormatFloat(f.fetchTimeout.Seconds(), 'f', -1, 64) + "s"
	if f.listener != "" {
		at := f.listener
		if !strings.Contains(at, ":") {
			at = net.JoinHostPort("127.0.0.1", at)
		}
		l := new(envoyListener)
		var err error
		if l.Host, l.Port, err = hostPort("--listener", at); err != nil {
			return file, err
		}
		file.Listener = l
	}
	return file, b.checkEnvoy()
}

// managementCluster is the name of the cluster that leads to Isobar.
const managementCluster = config.ReservedName

// envoyParts are shared by the files for Envoy. They write every text as JSON,
// which YAML reads as it is.
var envoyParts = template.Must(template.New("envoy").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}}).Parse(`{{define "node"}}
# Each Envoy needs an id of its own, and Envoy expands no variables here. Where several
# Envoys share this file, start each with --service-node NAME, which overrides the id.
node:
  id: {{json .NodeID}}
  cluster: {{json .Cluster}}
{{- if .NodeName}}
  metadata: {NODE_NAME: {{json .NodeName}}} # the Kubernetes Node, from which Isobar takes the locality
{{- else}}
  locality:
    region: {{json .Locality.Region}}
    zone: {{json .Locality.Zone}}
{{- if .Locality.SubZone}}
    sub_zone: {{json .Locality.SubZone}}
{{- end}}{{end}}{{end}}
{{- define "load"}}# Load reports: what this Envoy sends where, which is what Isobar balances by.
cluster_manager:
  load_stats_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
      - envoy_grpc: {cluster_name: isobar}
{{- if .Checks}}

# Health checks: Isobar says which endpoints this Envoy probes.
hds_config:
  api_type: GRPC
  transport_api_version: V3
  grpc_services:
    - envoy_grpc: {cluster_name: isobar}
{{- end}}{{end}}
{{- define "unlimited"}}circuit_breakers:
        thresholds:
          - {max_connections: 4294967295, max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: 4294967295}
          - {priority: HIGH, max_connections: 4294967295, max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: 4294967295}{{end}}
{{- define "ejection"}}outlier_detection:
        interval: 2s
        base_ejection_time: 1s
        max_ejection_time: 30s
        max_ejection_percent: 100
        consecutive_5xx: 5
        failure_percentage_threshold: 90
        failure_percentage_minimum_hosts: 1
        failure_percentage_request_volume: 5
        enforcing_failure_percentage: 100
        enforcing_failure_percentage_local_origin: 100
        enforcing_consecutive_5xx: 100
        enforcing_consecutive_gateway_failure: 0
        enforcing_consecutive_local_origin_failure: 0
        enforcing_success_rate: 0
        enforcing_local_origin_success_rate: 0{{end}}
{{- define "isobar"}}    - name: isobar
{{- if .IsIP}}
      type: STATIC
{{- else}}
      type: STRICT_DNS
      dns_lookup_family: V4_PREFERRED # Envoy's own default takes the IPv6 addresses of a host that has both, and no other
{{- end}}
      connect_timeout: 5s
      # Outside ADS each EDS cluster is a request to the server; Envoy's own limit is 1,024.
      {{template "unlimited" .}}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config:
            http2_protocol_options:
              connection_keepalive: {interval: 30s, timeout: 10s}
      load_assignment:
        cluster_name: isobar
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address:
                    socket_address: {address: {{json .Host}}, port_value: {{.Port}}}
{{- template "tls" .}}{{end}}` + envoyTLS))

// envoyListeners is for a first try: requests go to the cluster that the Host
// header names, and to the one cluster where there is only one.
const envoyListeners = `{{define "listeners"}}
{{- if not .Listener}}  # Your listeners go here; route to the services by their names. A route_config
  # that names clusters from CDS needs validate_clusters: false.
  listeners: []
{{- else}}  listeners:
    # For a first try: the Host header of a request names the service.
    - name: first-try
      address:
        socket_address: {address: {{json .Listener.Host}}, port_value: {{.Listener.Port}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: first-try
                strip_any_host_port: true
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  validate_clusters: false # clusters from CDS are not there yet when Envoy reads this
                  virtual_hosts:
                    - name: services
                      domains: ["*"]
                      routes:
                        - match: {prefix: ""}
                          route: { {{- if eq (len .Services) 1}}cluster: {{json (index .Services 0)}}{{else}}cluster_header: ":authority"{{end -}} }
{{- end}}{{end}}`

// envoyBootstrap is a whole file.
var envoyBootstrap = template.Must(template.Must(template.Must(envoyParts.Clone()).Parse(envoyListeners)).Parse(`{{template "node" .}}

dynamic_resources:
  ads_config:
    api_type: GRPC
    transport_api_version: V3
    set_node_on_first_message_only: true
    grpc_services:
      - envoy_grpc: {cluster_name: isobar}
{{- if not .Services}}
  cds_config:
    resource_api_version: V3
    initial_fetch_timeout: {{.FetchTimeout}} # 0s: a starting Envoy waits for the server
    ads: {}
{{- end}}

{{template "load" .}}

static_resources:
{{template "listeners" .}}
  clusters:
{{template "isobar" .}}
{{- $file := .}}{{range .Services}}
    - name: {{json .}}
      type: EDS
      connect_timeout: 2s
      lb_policy: ROUND_ROBIN
      common_lb_config:
        healthy_panic_threshold: {value: 10}
        locality_weighted_lb_config: {}
      # Isobar limits load itself; without this Envoy fails requests beyond 1,024.
      {{template "unlimited" $file}}
      # Envoy leaves an endpoint for some seconds that answers nearly nothing but errors.
      {{template "ejection" $file}}
      eds_cluster_config:
        eds_config:
          resource_api_version: V3
          initial_fetch_timeout: {{$file.FetchTimeout}} # 0s: a starting Envoy waits for the server
          ads: {}
{{- end}}
`))

// envoyFragment is what an Envoy with another control plane gets in addition.
var envoyFragment = template.Must(template.Must(envoyParts.Clone()).Parse(`# Merge this into the bootstrap file. The other control plane gives each cluster
# that Isobar balances:
#
#   type: EDS
#   lb_policy: ROUND_ROBIN
#   common_lb_config: {locality_weighted_lb_config: {}}
#   eds_cluster_config:
#     eds_config:
#       resource_api_version: V3
#       initial_fetch_timeout: {{.FetchTimeout}}
#       api_config_source:
#         api_type: GRPC
#         transport_api_version: V3
#         grpc_services: [{envoy_grpc: {cluster_name: isobar}}]
{{- if not .WithoutNode}}
{{template "node" .}}
{{- end}}

{{template "load" .}}

static_resources:
  clusters:
{{template "isobar" .}}
`))
