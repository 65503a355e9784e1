package main

import (
	"regexp"

	"github.com/spf13/cobra"
)

// besideFlags are those of fragments for clients that have another control
// plane.
type besideFlags struct {
	beside    bool
	authority string // gRPC
}

func (f *besideFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.beside, "beside", false, "print an addition to the bootstrap file of clients that have another control plane")
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

func (f *besideFlags) writeGRPC(cmd *cobra.Command, b bootstrap, creds grpcCreds) error {
	if !authorityForm.MatchString(f.authority) {
		return usagef("--authority %q: want letters, digits and . _ -", f.authority)
	}
	whole := grpcBootstrap(b, creds)
	return writeJSON(cmd.OutOrStdout(), grpcFragment{
		Authorities: map[string]grpcAuthority{f.authority: {Servers: whole.Servers}}, Node: whole.Node,
	})
}
