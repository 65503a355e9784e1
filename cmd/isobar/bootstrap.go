package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"

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
