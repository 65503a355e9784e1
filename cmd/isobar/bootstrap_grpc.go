package main

import (
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// The languages of gRPC that take other bootstrap files than the rest where the
// server speaks TLS.
const (
	languageAny    = ""
	languageGo     = "go"
	languageCPP    = "cpp"
	languagePython = "python"
	languageJava   = "java"
	languageNode   = "node"
)

// grpcLanguage is what the client is written in, as far as its bootstrap file
// depends on that. C++ includes the other languages that use the core of gRPC: C#
// (Grpc.Core), Ruby, PHP and Objective-C.
type grpcLanguage struct{ name string }

func (l *grpcLanguage) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.name, "language", languageAny, "language of the client: go, cpp, python, java or node; "+
		"java and node need other settings if the server uses TLS")
}

// credentials returns the channel credentials that clients of the language take,
// and what else has to be done for them.
func (l *grpcLanguage) credentials(tls *bootstrapTLS) (creds grpcCreds, warning string, err error) {
	switch l.name {
	case languageAny, languageGo, languageCPP, languagePython:
		return tls.grpc(), "", nil
	case languageJava:
		creds, warning = javaCredentials(tls)
		return creds, warning, nil
	case languageNode:
		if tls.TLS {
			return grpcCreds{}, "", usagef("--language node: grpc-js can't use TLS to its server: run a TLS proxy beside it, " +
				"and give its address as --server, without --tls, --ca, --cert and --key; docs/how-to/grpc.md has one")
		}
		return tls.grpc(), "", nil
	}
	return grpcCreds{}, "", usagef("--language %q: want go, cpp, python, java or node", l.name)
}

// javaCredentials leaves the files out that grpc-java does not look at.
func javaCredentials(tls *bootstrapTLS) (grpcCreds, string) {
	switch {
	case tls.Cert != "":
		return grpcCreds{Type: isobarTLS, Config: tls.grpc().Config},
			"grpc-java has no built-in credentials with a client certificate: register the XdsCredentialsProvider of docs/how-to/grpc.md, " +
				`which reads these files; its name is "` + isobarTLS + `"`
	case tls.CA != "":
		return grpcCreds{Type: "tls"},
			"grpc-java always uses the trust store of the JVM: put " + tls.CA + " into a trust store, and start the JVM with -Djavax.net.ssl.trustStore"
	}
	return tls.grpc(), ""
}

// isobarTLS is the name of the credentials of the example for grpc-java.
const isobarTLS = "tls_files"

// besideFlags are those of fragments for clients that have another control
// plane.
type besideFlags struct {
	beside    bool
	authority string // gRPC
}

func (f *besideFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.beside, "beside", false, "print an addition to the bootstrap file of clients that have another control plane")
}

// authorityPattern matches authorities that xdstp names and keys of files may contain.
var authorityPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$`)

// grpcFragment is what makes a client find a second server (gRFC A47).
type grpcFragment struct {
	Authorities map[string]grpcAuthority `json:"authorities"`
	Node        grpcNode                 `json:"node"`
}

type grpcAuthority struct {
	Servers []grpcServer `json:"xds_servers"`
}

func (f *besideFlags) writeGRPC(cmd *cobra.Command, b bootstrap, creds grpcCreds) error {
	if !authorityPattern.MatchString(f.authority) {
		return usagef("--authority %q: want letters, digits and . _ -", f.authority)
	}
	whole := grpcBootstrap(b, creds)
	return writeJSON(cmd.OutOrStdout(), grpcFragment{
		Authorities: map[string]grpcAuthority{f.authority: {Servers: whole.Servers}}, Node: whole.Node,
	})
}

// listenerFlags are those for gRPC servers that take their listeners from xDS.
// The files are the server's: they need not be where its bootstrap file is made.
type listenerFlags struct {
	listeners           bool
	cert, key, clientCA string
}

func (f *listenerFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.BoolVar(&f.listeners, "server-listeners", false, "also for gRPC servers that take their listeners from xDS; the flags below imply it")
	fs.StringVar(&f.cert, "listener-cert", "", "the gRPC server's file with its own certificate (PEM)")
	fs.StringVar(&f.key, "listener-key", "", "the gRPC server's file with the key of --listener-cert (PEM)")
	fs.StringVar(&f.clientCA, "listener-client-ca", "", "the gRPC server's file with the authorities (PEM) that sign its clients' certificates")
}

// grpcListeners is what a gRPC server finds its listeners by (gRFC A36), and the
// files of their certificates (gRFC A29).
type grpcListeners struct {
	Certificates map[string]grpcCertificates `json:"certificate_providers,omitempty"`
	Template     string                      `json:"server_listener_resource_name_template,omitempty"`
}

type grpcCertificates struct {
	Plugin string           `json:"plugin_name"`
	Config grpcWatchedFiles `json:"config"`
}

// grpcWatchedFiles is the configuration of the plugin file_watcher, which reads
// the files again as often as it says.
type grpcWatchedFiles struct {
	Cert    string `json:"certificate_file"`
	Key     string `json:"private_key_file"`
	CA      string `json:"ca_certificate_file"`
	Refresh string `json:"refresh_interval"`
}

// check returns what the file says of listeners; nothing without the flags.
func (f *listenerFlags) check(beside bool) (grpcListeners, error) {
	files := 0
	for _, name := range []string{f.cert, f.key, f.clientCA} {
		if name != "" {
			files++
		}
	}
	switch {
	case !f.listeners && files == 0:
		return grpcListeners{}, nil
	case beside:
		return grpcListeners{}, usagef("--server-listeners does not go with --beside: the other control plane gives the listeners")
	case files == 0:
		return grpcListeners{Template: resource.ServerListenerTemplate(resource.ListenerPlain)}, nil
	case files < 3:
		return grpcListeners{}, usagef("--listener-cert, --listener-key and --listener-client-ca belong together: give all three, or none for plaintext")
	case filepath.Dir(f.cert) != filepath.Dir(f.key):
		return grpcListeners{}, usagef("--listener-key %s: want a file in the directory of --listener-cert: grpc-go accepts no other directory", f.key)
	}
	return grpcListeners{
		Certificates: map[string]grpcCertificates{resource.ListenerCertificates: {
			Plugin: "file_watcher",
			Config: grpcWatchedFiles{Cert: f.cert, Key: f.key, CA: f.clientCA, Refresh: "60s"},
		}},
		Template: resource.ServerListenerTemplate(resource.ListenerMTLS),
	}, nil
}
