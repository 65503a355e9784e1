package main

import (
	"regexp"
	"text/template"

	"github.com/spf13/cobra"
)

// besideFlags are those of fragments for clients that have another control
// plane.
type besideFlags struct {
	beside    bool
	checks    bool   // Envoy
	authority string // gRPC
}

func (f *besideFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.beside, "beside", false, "print what to add to the bootstrap file of clients that have another control plane")
}

// authorityForm is what can stand in xdstp names and as a key of a file.
var authorityForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// grpcFragment is what makes a client find a second server (gRFC A47).
type grpcFragment struct {
	Authorities map[string]grpcAuthority `json:"authorities"`
	Node        grpcNode                 `json:"node"`
}

type grpcAuthority struct {
	Servers []grpcServer `json:"xds_servers"`
}

func (f *besideFlags) writeGRPC(cmd *cobra.Command, b bootstrap) error {
	if !authorityForm.MatchString(f.authority) {
		return usagef("--authority %q: want letters, digits and . _ -", f.authority)
	}
	whole := grpcBootstrap(b)
	return writeJSON(cmd.OutOrStdout(), grpcFragment{
		Authorities: map[string]grpcAuthority{f.authority: {Servers: whole.Servers}}, Node: whole.Node,
	})
}

// envoyBeside is what an Envoy is told beside what its own control plane tells.
type envoyBeside struct {
	bootstrap

	Checks bool
}

func (f *besideFlags) writeEnvoy(cmd *cobra.Command, b bootstrap) error {
	if len(b.Services) > 0 {
		return usagef("--service does not go with --beside: the other control plane gives the clusters")
	}
	return envoyFragment.Execute(cmd.OutOrStdout(), envoyBeside{bootstrap: b, Checks: f.checks})
}

var envoyFragment = template.Must(template.Must(envoyParts.Clone()).Parse(`# Merge this into the bootstrap file. The other control plane gives each cluster
# that Isobar balances:
#
#   type: EDS
#   lb_policy: ROUND_ROBIN
#   common_lb_config: {locality_weighted_lb_config: {}}
#   eds_cluster_config:
#     eds_config:
#       resource_api_version: V3
#       api_config_source:
#         api_type: GRPC
#         transport_api_version: V3
#         grpc_services: [{envoy_grpc: {cluster_name: isobar}}]
{{template "node" .}}

{{template "load" .}}
{{- if .Checks}}

# Health checks: Isobar says which endpoints this Envoy probes.
hds_config:
  api_type: GRPC
  transport_api_version: V3
  grpc_services:
    - envoy_grpc: {cluster_name: isobar}
{{- end}}

static_resources:
  clusters:
{{template "isobar" .}}
`))
