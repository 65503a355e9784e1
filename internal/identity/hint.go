package identity

import "strings"

// tlsHints are what failures of TLS connections say, and what to do about each.
// Texts are compared because an error that went through gRPC is nothing else.
var tlsHints = []struct{ says, hint string }{
	{"certificate signed by unknown authority", "none of the certificates in --ca signs the server's: give --ca the file of its authority"},
	{"is not yet valid: current time", ""}, // expired or not valid yet: told apart below
	{"cannot validate certificate for", "address the server by a name or an IP address in its certificate"},
	{"certificate is valid for", "address the server by a name or an IP address in its certificate"},
	{"certificate is not valid for any names", "the server's certificate needs the name or the IP address by which it is addressed"},
	{"tls: certificate required", "the server wants a certificate: give --cert and --key"},
	{"tls: expired certificate", "the server refuses the certificate of --cert, which has expired or is not valid yet: renew it"},
	{"tls: unknown certificate authority", "the server refuses the certificate of --cert: the server's client_ca does not sign it"},
	{"tls: bad certificate", "the server refuses the certificate of --cert: its log says why"},
	{"first record does not look like a TLS handshake", "the server speaks no TLS at this address: leave --ca out"},
	{"gave HTTP response to HTTPS client", "the server speaks no TLS at this address: write http://"},
}

// TLSHint tells what to do about a connection that failed for its TLS; "" where
// TLS is not what failed. The flags are those of all commands that connect.
func TLSHint(err error) string {
	text := err.Error()
	for _, h := range tlsHints {
		switch {
		case !strings.Contains(text, h.says):
		case h.hint != "":
			return h.hint
		case strings.Contains(text, " is before "):
			return "the server's certificate is not valid yet: look at the clocks of both machines"
		default:
			return "the server's certificate has expired: renew it there (xds.tls or admin.tls), or look at the clock of this machine"
		}
	}
	return ""
}
