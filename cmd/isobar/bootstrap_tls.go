package main

import (
	"github.com/spf13/cobra"
)

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
	fs.StringVar(&f.Cert, "cert", "", "the client's file with the certificate (PEM) that it shows")
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
