package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

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
		return grpcListeners{}, usagef("--listener-key %s: want it in the folder of --listener-cert: grpc-go takes it from no other", f.key)
	}
	return grpcListeners{
		Certificates: map[string]grpcCertificates{resource.ListenerCertificates: {
			Plugin: "file_watcher",
			Config: grpcWatchedFiles{Cert: f.cert, Key: f.key, CA: f.clientCA, Refresh: "60s"},
		}},
		Template: resource.ServerListenerTemplate(resource.ListenerMTLS),
	}, nil
}
