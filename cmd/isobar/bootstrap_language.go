package main

import (
	"github.com/spf13/cobra"
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
// depends on that. C++ stands for what else is built on the core of gRPC: C#
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
			"grpc-java has no credentials that show a certificate: register the XdsCredentialsProvider of docs/how-to/grpc.md, " +
				`which reads these files; its name is "` + isobarTLS + `"`
	case tls.CA != "":
		return grpcCreds{Type: "tls"},
			"grpc-java trusts what the JVM trusts, whatever the file says: put " + tls.CA + " into a trust store, and start the JVM with -Djavax.net.ssl.trustStore"
	}
	return tls.grpc(), ""
}

// isobarTLS is the name of the credentials of the example for grpc-java.
const isobarTLS = "tls_files"
