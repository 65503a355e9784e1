package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar"
)

// bootstrapFlags say where the server is and who the client is.
type bootstrapFlags struct {
	server, nodeID, cluster, locality string

	tls bootstrapTLS
}

// bootstrap is what the flags say, checked.
type bootstrap struct {
	bootstrapTLS

	Server   string // host:port
	Host     string
	Port     uint16
	IsIP     bool
	NodeID   string
	Cluster  string
	Locality isobar.Locality
	Services []string // Envoy: clusters made here instead of by CDS
}

func bootstrapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print a bootstrap file for a client",
		Long: `Print the file that tells a client where its management server is and who and
where the client is. The locality decides which weights it gets.`,
	}
	cmd.AddCommand(bootstrapGRPCCommand(), bootstrapEnvoyCommand())
	return cmd
}

func bootstrapGRPCCommand() *cobra.Command {
	var flags bootstrapFlags
	var besides besideFlags
	cmd := &cobra.Command{
		Use:   "grpc",
		Short: "Print a bootstrap file for gRPC clients (JSON)",
		Long: `Print a bootstrap file for gRPC clients. Point the environment variable
GRPC_XDS_BOOTSTRAP to it and dial xds:///SERVICE.

With --beside it is what to add to the bootstrap file of clients that have
another control plane: an authority, of which routes of that control plane name
clusters as xdstp://isobar/envoy.config.cluster.v3.Cluster/SERVICE.`,
		Example: "  isobar bootstrap grpc --cluster shop --locality us-east/b > bootstrap.json\n" +
			"  isobar bootstrap grpc --beside --locality us-east/b",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.check()
			if err != nil {
				return err
			}
			if besides.beside {
				return besides.writeGRPC(cmd, b)
			}
			return writeJSON(cmd.OutOrStdout(), grpcBootstrap(b))
		},
	}
	flags.register(cmd)
	besides.register(cmd)
	cmd.Flags().StringVar(&besides.authority, "authority", "isobar", "with --beside: the authority in the names of Isobar's resources")
	return cmd
}

func bootstrapEnvoyCommand() *cobra.Command {
	var flags bootstrapFlags
	var besides besideFlags
	var services []string
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Print a bootstrap file for Envoy (YAML)",
		Long: `Print a bootstrap file for Envoy: clusters and endpoints over ADS, load reports
over LRS. Listeners stay yours: add them under static_resources. With --service
the clusters stand in the file and only their endpoints come from the server.

With --beside it is what to add to the bootstrap file of Envoys that have another
control plane: where Isobar is, and that load reports go there. That control
plane then gives clusters an eds_config that names the cluster "isobar".`,
		Example: "  isobar bootstrap envoy --cluster shop --locality us-east/b > envoy.yaml\n" +
			"  isobar bootstrap envoy --locality us-east/b --service checkout --service payment\n" +
			"  isobar bootstrap envoy --beside --locality us-east/b",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.check()
			if err != nil {
				return err
			}
			for _, s := range services {
				if strings.TrimSpace(s) == "" {
					return usagef("--service %q: want a service's name", s)
				}
			}
			if err := b.checkEnvoy(); err != nil {
				return err
			}
			b.Services = services
			if besides.beside {
				return besides.writeEnvoy(cmd, b)
			}
			if besides.checks {
				return usagef("--checks goes with --beside")
			}
			return envoyBootstrap.Execute(cmd.OutOrStdout(), b)
		},
	}
	flags.register(cmd)
	besides.register(cmd)
	cmd.Flags().BoolVar(&besides.checks, "checks", false, "with --beside: let the Envoys probe endpoints for Isobar, too")
	cmd.Flags().StringArrayVar(&services, "service", nil, "a service whose cluster stands in the file; may be repeated; without it all clusters come over CDS")
	return cmd
}

func (f *bootstrapFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "127.0.0.1:18000", "the server's xDS address, HOST:PORT")
	cmd.Flags().StringVar(&f.nodeID, "node-id", "", "name of this client (default: the host's name)")
	cmd.Flags().StringVar(&f.cluster, "cluster", "client", "name of the client service")
	cmd.Flags().StringVar(&f.locality, "locality", "", "where the client runs: region/zone or region/zone/sub_zone")
	f.tls.register(cmd)
	_ = cmd.MarkFlagRequired("locality") // fails only for a flag that is not there
}

func (f *bootstrapFlags) check() (bootstrap, error) {
	if err := f.tls.check(); err != nil {
		return bootstrap{}, err
	}
	b := bootstrap{Server: f.server, NodeID: f.nodeID, Cluster: f.cluster, bootstrapTLS: f.tls}
	var err error
	if b.Host, b.Port, err = hostPort("--server", f.server); err != nil {
		return b, err
	}
	_, err = netip.ParseAddr(b.Host)
	b.IsIP = err == nil
	b.Locality, err = isobar.ParseLocality(f.locality)
	switch {
	case err != nil:
		return b, usagef("--locality: %w", err)
	case b.Locality.Zone == "":
		return b, usagef("--locality %q: want REGION/ZONE: distances and weights are per zone", f.locality)
	case b.Cluster == "":
		return b, usagef("--cluster: want the name of the client service: demand is summed under it")
	}
	if b.NodeID == "" {
		if b.NodeID, err = os.Hostname(); err != nil {
			return b, fmt.Errorf("--node-id: not given, and the host has no name: %w", err)
		}
	}
	return b, nil
}

// grpcFile is the bootstrap format of gRPC (gRFC A27).
type grpcFile struct {
	Servers []grpcServer `json:"xds_servers"`
	Node    grpcNode     `json:"node"`
}

type grpcServer struct {
	URI      string      `json:"server_uri"`
	Creds    []grpcCreds `json:"channel_creds"`
	Features []string    `json:"server_features"`
}

type grpcCreds struct {
	Type   string        `json:"type"`
	Config *grpcTLSFiles `json:"config,omitempty"`
}

type grpcNode struct {
	ID       string       `json:"id"`
	Cluster  string       `json:"cluster"`
	Locality grpcLocality `json:"locality"`
}

type grpcLocality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone,omitempty"`
}

func grpcBootstrap(b bootstrap) grpcFile {
	return grpcFile{
		Servers: []grpcServer{{URI: b.Server, Creds: []grpcCreds{b.grpc()}, Features: []string{"xds_v3"}}},
		Node: grpcNode{ID: b.NodeID, Cluster: b.Cluster, Locality: grpcLocality{
			Region: b.Locality.Region, Zone: b.Locality.Zone, SubZone: b.Locality.SubZone,
		}},
	}
}

// envoyParts are shared by the files for Envoy. They write every text as JSON,
// which YAML reads as it is.
var envoyParts = template.Must(template.New("envoy").Funcs(template.FuncMap{"json": func(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}}).Parse(`{{define "node"}}node:
  id: {{json .NodeID}}
  cluster: {{json .Cluster}}
  locality:
    region: {{json .Locality.Region}}
    zone: {{json .Locality.Zone}}
{{- if .Locality.SubZone}}
    sub_zone: {{json .Locality.SubZone}}
{{- end}}{{end}}
{{- define "load"}}# Load reports: what this Envoy sends where, which is what Isobar balances by.
cluster_manager:
  load_stats_config:
    api_type: GRPC
    transport_api_version: V3
    grpc_services:
      - envoy_grpc: {cluster_name: isobar}{{end}}
{{- define "isobar"}}    - name: isobar
      type: {{if .IsIP}}STATIC{{else}}STRICT_DNS{{end}}
      connect_timeout: 5s
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

// envoyBootstrap is a whole file.
var envoyBootstrap = template.Must(template.Must(envoyParts.Clone()).Parse(`{{template "node" .}}

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
    ads: {}
{{- end}}

{{template "load" .}}

static_resources:
  # Your listeners go here; route to the services by their names.
  listeners: []
  clusters:
{{template "isobar" .}}
{{- range .Services}}
    - name: {{json .}}
      type: EDS
      connect_timeout: 5s
      lb_policy: ROUND_ROBIN
      common_lb_config:
        locality_weighted_lb_config: {}
      # Isobar limits load itself; without this Envoy fails requests beyond 1,024.
      circuit_breakers:
        thresholds:
          - {max_connections: 4294967295, max_pending_requests: 4294967295, max_requests: 4294967295, max_retries: 4294967295}
      eds_cluster_config:
        eds_config:
          resource_api_version: V3
          ads: {}
{{- end}}
`))
