package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/rpc"
)

// bootstrapFlags say where the server is and who the client is.
type bootstrapFlags struct {
	server, nodeID, nodeName, cluster, locality string

	fromEnv     bool
	withoutNode bool // the other control plane says who and where the client is
	tls         bootstrapTLS
}

// bootstrap is what the flags say, checked.
type bootstrap struct {
	bootstrapTLS

	Server   string // host:port
	Host     string
	Port     uint16
	IsIP     bool
	NodeID   string
	NodeName string // the Kubernetes Node, in place of a locality
	Cluster  string
	Locality isobar.Locality
}

func bootstrapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Print a bootstrap file for a client",
		Long: `Print a bootstrap file for a client, with the address of the management server, the client's
name and its locality. The locality determines the weights that the client gets.`,
	}
	cmd.AddCommand(bootstrapGRPCCommand(), bootstrapEnvoyCommand())
	return cmd
}

func bootstrapGRPCCommand() *cobra.Command {
	var flags bootstrapFlags
	var besides besideFlags
	var language grpcLanguage
	var listeners listenerFlags
	cmd := &cobra.Command{
		Use:   "grpc",
		Short: "Print a bootstrap file for gRPC clients (JSON)",
		Long: `Print a bootstrap file for gRPC clients. Set the environment variable
GRPC_XDS_BOOTSTRAP to its path, and dial xds:///SERVICE.

With --beside, the command prints an addition to the bootstrap file of clients
that have another control plane: an authority. Routes of that control plane then name
Isobar's clusters as xdstp://isobar/envoy.config.cluster.v3.Cluster/SERVICE.

If the server uses TLS, each language needs other settings: name the language
of the client with --language.

With --server-listeners, the file is also for gRPC servers that take their listeners
from xDS: xds.NewGRPCServer in Go, XdsServerBuilder in Java and C++. Isobar sends each
server a listener that accepts every call. The listener has no RBAC, no rate limits
and no fault injection: the program itself must authorize and limit calls.`,
		Example: "  isobar bootstrap grpc --cluster shop --locality us-east/b > bootstrap.json\n" +
			"  isobar bootstrap grpc --beside --locality us-east/b",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := flags.check()
			if err != nil {
				return err
			}
			creds, warning, err := language.credentials(&b.bootstrapTLS)
			if err != nil {
				return err
			}
			if warning != "" {
				cmd.PrintErrf("warning: %s\n", warning)
			}
			served, err := listeners.check(besides.beside)
			if err != nil {
				return err
			}
			if besides.beside {
				return besides.writeGRPC(cmd, b, creds)
			}
			file := grpcBootstrap(b, creds)
			file.grpcListeners = served
			return writeJSON(cmd.OutOrStdout(), file)
		},
	}
	flags.register(cmd)
	besides.register(cmd)
	language.register(cmd)
	listeners.register(cmd)
	cmd.Flags().StringVar(&besides.authority, "authority", "isobar", "with --beside: the authority in the names of Isobar's resources")
	return cmd
}

func (f *bootstrapFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.server, "server", "127.0.0.1:18000", "the server's xDS address, HOST:PORT")
	cmd.Flags().StringVar(&f.nodeID, "node-id", "", "name of this client (default: the host's name)")
	cmd.Flags().StringVar(&f.cluster, "cluster", "client", "name of the client service")
	cmd.Flags().StringVar(&f.locality, "locality", "", "where the client runs: region/zone or region/zone/sub_zone")
	cmd.Flags().StringVar(&f.nodeName, "node-name", "",
		"instead of --locality: the Kubernetes Node of the client, if the server has discovery.kubernetes")
	cmd.MarkFlagsMutuallyExclusive("node-name", "locality")
	f.tls.register(cmd)
	cmd.Flags().BoolVar(&f.fromEnv, "from-env", false, "take settings without a flag from environment variables: "+strings.Join(variableNames(), ", "))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if f.fromEnv {
			return f.readEnvironment(cmd.Flags(), os.LookupEnv)
		}
		if f.withoutNode || f.nodeName != "" {
			return nil
		}
		if !cmd.Flags().Changed("locality") {
			return asUsage(cmd, errors.New(`required flag(s) "locality" not set`))
		}
		return nil
	}
}

func (f *bootstrapFlags) check() (bootstrap, error) {
	if err := f.tls.check(); err != nil {
		return bootstrap{}, err
	}
	b := bootstrap{Server: f.server, NodeID: f.nodeID, NodeName: f.nodeName, Cluster: f.cluster, bootstrapTLS: f.tls}
	var err error
	if b.Host, b.Port, err = hostPort("--server", f.server); err != nil {
		return b, err
	}
	_, err = netip.ParseAddr(b.Host)
	b.IsIP = err == nil
	if f.withoutNode {
		return b, nil
	}
	b.Locality, err = isobar.ParseLocality(f.locality)
	switch {
	case err != nil:
		return b, usagef("--locality: %w", err)
	case b.Locality.Zone == "" && b.NodeName == "":
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

	grpcListeners //nolint:embeddedstructfieldcheck // its fields are the last in JSON
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
	ID       string            `json:"id"`
	Cluster  string            `json:"cluster"`
	Locality *grpcLocality     `json:"locality,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

type grpcLocality struct {
	Region  string `json:"region"`
	Zone    string `json:"zone"`
	SubZone string `json:"sub_zone,omitempty"`
}

// grpcFeatures say how a client takes what the server does. Clients pass over
// those that they don't know. With ignore_resource_deletion (gRFC A53) a client
// goes on by what it has if a service is removed; with
// resource_timer_is_transient_error (gRFC A88) a resource that does not come within
// 15 seconds is late and not absent.
var grpcFeatures = []string{"xds_v3", "ignore_resource_deletion", "resource_timer_is_transient_error"}

func grpcBootstrap(b bootstrap, creds grpcCreds) grpcFile {
	node := grpcNode{ID: b.NodeID, Cluster: b.Cluster}
	if b.NodeName != "" {
		node.Metadata = map[string]string{rpc.MachineKey: b.NodeName}
	} else {
		node.Locality = &grpcLocality{Region: b.Locality.Region, Zone: b.Locality.Zone, SubZone: b.Locality.SubZone}
	}
	return grpcFile{
		Servers: []grpcServer{{URI: b.Server, Creds: []grpcCreds{creds}, Features: grpcFeatures}},
		Node:    node,
	}
}

// environmentPrefix begins the variables that --from-env reads.
const environmentPrefix = "ISOBAR_"

// environmentFlags are the flags that have a variable: ISOBAR_NODE_ID is that of
// --node-id. The parts of --locality have one each, as Kubernetes has a label for each.
var environmentFlags = []string{"server", "node-id", "cluster", "ca", "cert", "key"}

const (
	regionVariable  = environmentPrefix + "REGION"
	zoneVariable    = environmentPrefix + "ZONE"
	subZoneVariable = environmentPrefix + "SUB_ZONE"
	// nodeNameVariable counts where there is no zone.
	nodeNameVariable = environmentPrefix + "NODE_NAME"
)

func variableOf(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// variableNames lists all variables that --from-env reads.
func variableNames() []string {
	out := []string{regionVariable, zoneVariable, subZoneVariable, nodeNameVariable}
	for _, name := range environmentFlags {
		out = append(out, variableOf(name))
	}
	return out
}

// readEnvironment sets the flags that the call leaves out. It refuses an empty region
// or zone: a client without its zone gets the weights of no zone. Where both are known,
// the zone counts, not the Node.
func (f *bootstrapFlags) readEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	for _, name := range environmentFlags {
		value, found := lookup(variableOf(name))
		if !found || flags.Changed(name) {
			continue
		}
		if err := flags.Set(name, value); err != nil {
			return usagef("%s: %w", variableOf(name), err)
		}
	}
	if flags.Changed("locality") || flags.Changed("node-name") {
		return nil
	}
	if zone, _ := lookup(zoneVariable); zone == "" {
		if f.nodeName, _ = lookup(nodeNameVariable); f.nodeName != "" {
			return nil
		}
	}
	var parts []string
	for _, p := range []struct{ variable, label string }{
		{regionVariable, "topology.kubernetes.io/region"}, {zoneVariable, "topology.kubernetes.io/zone"},
	} {
		value, _ := lookup(p.variable)
		if value == "" {
			return usagef("%s is not set or empty: set it, or give --locality. In Kubernetes 1.35 or newer: "+
				"fieldRef: {fieldPath: \"metadata.labels['%s']\"}; in older versions a Pod does not have this label: "+
				"set %s from spec.nodeName there", p.variable, p.label, nodeNameVariable)
		}
		parts = append(parts, value)
	}
	if value, _ := lookup(subZoneVariable); value != "" {
		parts = append(parts, value)
	}
	f.locality = strings.Join(parts, "/")
	return nil
}

// bootstrapTLS is how a client uses TLS with the server. The files are the
// client's: they need not be where its bootstrap file is made.
type bootstrapTLS struct {
	TLS           bool
	CA, Cert, Key string
}

func (f *bootstrapTLS) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.TLS, "tls", false, "use TLS to the server; the flags below imply it")
	fs.StringVar(&f.CA, "ca", "", "the client's file with the authorities (PEM) that sign the server's certificate")
	fs.StringVar(&f.Cert, "cert", "", "the client's file with its certificate (PEM)")
	fs.StringVar(&f.Key, "key", "", "the client's file with the key of --cert (PEM)")
}

func (f *bootstrapTLS) check() error {
	if (f.Cert == "") != (f.Key == "") {
		return usagef("--cert and --key belong together: give both")
	}
	f.TLS = f.TLS || f.CA != "" || f.Cert != ""
	return nil
}

// grpcTLSFiles is the configuration of the channel credentials "tls" (gRFC
// A65). Without a file for the authorities they are those of the system.
type grpcTLSFiles struct {
	CA   string `json:"ca_certificate_file,omitempty"`
	Cert string `json:"certificate_file,omitempty"`
	Key  string `json:"private_key_file,omitempty"`
}

func (f *bootstrapTLS) grpc() grpcCreds {
	switch {
	case !f.TLS:
		return grpcCreds{Type: "insecure"}
	case f.CA == "" && f.Cert == "":
		return grpcCreds{Type: "tls"}
	}
	return grpcCreds{Type: "tls", Config: &grpcTLSFiles{CA: f.CA, Cert: f.Cert, Key: f.Key}}
}

// checkEnvoy refuses what Envoy would take for no check at all.
func (f *bootstrapTLS) checkEnvoy() error {
	if f.TLS && f.CA == "" {
		return usagef("--ca: without it, Envoy trusts every server; name the file with the authority, for example /etc/ssl/certs/ca-certificates.crt")
	}
	return nil
}

// envoyTLS is the transport socket of the cluster isobar.
const envoyTLS = `{{define "tls"}}{{if .TLS}}
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
{{- if not .IsIP}}
          sni: {{json .Host}}
{{- end}}
          common_tls_context:
            alpn_protocols: [h2]
{{- if .Cert}}
            tls_certificates:
              - certificate_chain: {filename: {{json .Cert}}}
                private_key: {filename: {{json .Key}}}
{{- end}}
            validation_context:
              trusted_ca: {filename: {{json .CA}}}
              match_typed_subject_alt_names:
                - san_type: {{if .IsIP}}IP_ADDRESS{{else}}DNS{{end}}
                  matcher: {exact: {{json .Host}}}
{{- end}}{{end}}`
