package resource_test

import (
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/isobar-xds/isobar/internal/xds/resource"
)

// The listener of a gRPC server is valid, listens where its name says, in the same
// words, and names the certificates of the bootstrap file where they are wanted.
func TestServerListeners(t *testing.T) {
	for name, want := range map[string]struct {
		host   string
		port   uint32
		mutual bool
	}{
		"grpc/server?xds.resource.listening_address=0.0.0.0:50051":              {"0.0.0.0", 50051, false},
		"grpc/server?xds.resource.listening_address=[::]:1":                     {"::", 1, false},
		"grpc/server?xds.resource.listening_address=[::ffff:10.0.0.1]:65535":    {"::ffff:10.0.0.1", 65535, false},
		"grpc/server/mtls?xds.resource.listening_address=[0:0:0:0:0:0:0:1]:443": {"0:0:0:0:0:0:0:1", 443, true},
	} {
		said, ok := resource.ParseServerListener(name)
		if !ok || !resource.IsServerListener(name) {
			t.Errorf("%s: no listener of a gRPC server", name)
			continue
		}
		l, err := resource.ServerListenerOf(name, said)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.ValidateAll(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		at := l.GetAddress().GetSocketAddress()
		if l.GetName() != name || at.GetAddress() != want.host || at.GetPortValue() != want.port {
			t.Errorf("%s: %v", name, at)
		}
		checkChain(t, l, want.mutual)
	}
}

func checkChain(t *testing.T, l *listenerv3.Listener, mutual bool) {
	t.Helper()
	chain := l.GetFilterChains()[0]
	var manager hcmv3.HttpConnectionManager
	if err := chain.GetFilters()[0].GetTypedConfig().UnmarshalTo(&manager); err != nil {
		t.Fatal(err)
	}
	if err := manager.ValidateAll(); err != nil {
		t.Error(err)
	}
	if !mutual {
		if chain.GetTransportSocket() != nil {
			t.Errorf("TLS in %v", chain)
		}
		return
	}
	var context tlsv3.DownstreamTlsContext
	if err := chain.GetTransportSocket().GetTypedConfig().UnmarshalTo(&context); err != nil {
		t.Fatal(err)
	}
	if err := context.ValidateAll(); err != nil {
		t.Error(err)
	}
	common := context.GetCommonTlsContext()
	if !context.GetRequireClientCertificate().GetValue() || common.GetTlsCertificateProviderInstance().GetInstanceName() != resource.ListenerCertificates ||
		common.GetValidationContext().GetCaCertificateProviderInstance().GetInstanceName() != resource.ListenerCertificates {
		t.Errorf("%v", &context)
	}
}

// Any other name is that of a service, if of anything.
func TestNamesOfNoServerListener(t *testing.T) {
	for _, name := range []string{
		"", "checkout", "grpc/server", "grpc/server?xds.resource.listening_address=", "grpc/server?xds.resource.listening_address=%s",
		"grpc/server?xds.resource.listening_address=localhost:80", "grpc/server?xds.resource.listening_address=0.0.0.0",
		"grpc/server?xds.resource.listening_address=0.0.0.0:0", "grpc/server?xds.resource.listening_address=0.0.0.0:080",
		"grpc/server?xds.resource.listening_address=0.0.0.0:+80", "grpc/server?xds.resource.listening_address=0.0.0.0:65536",
		"grpc/server?xds.resource.listening_address=[fe80::1%eth0]:80", "grpc/server/tls?xds.resource.listening_address=0.0.0.0:80",
		"grpc/serverless?xds.resource.listening_address=0.0.0.0:80", "xdstp://a/envoy.config.listener.v3.Listener/grpc/server?xds.resource.listening_address=0.0.0.0:80",
	} {
		if l, ok := resource.ParseServerListener(name); ok {
			t.Errorf("%q: %+v", name, l)
		}
	}
}
