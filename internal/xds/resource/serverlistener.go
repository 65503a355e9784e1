package resource

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A gRPC server that takes its configuration from xDS (gRFC A36) asks for a
// listener under a name that its bootstrap file makes of the address on which it
// listens. The name says all that the listener depends on, so every such listener
// exists: nothing of it is configured here.
const (
	serverListenerPrefix  = "grpc/server"
	serverListenerAddress = "?xds.resource.listening_address="
)

// ListenerSecurity is how a gRPC server uses TLS with its clients.
type ListenerSecurity string

// How a server with xDS credentials speaks TLS. Servers with other credentials
// pass over it.
const (
	ListenerPlain ListenerSecurity = ""     // not at all
	ListenerMTLS  ListenerSecurity = "mtls" // both sides show a certificate
)

// ListenerCertificates is the certificate provider of the server's bootstrap file
// that its listener names.
const ListenerCertificates = "isobar"

// ServerListener is what the name of the listener of a gRPC server says.
type ServerListener struct {
	Security ListenerSecurity
	Host     string // an IP address as the server writes it: it compares texts
	Port     uint16
}

// ServerListenerTemplate returns the server_listener_resource_name_template of a
// bootstrap file, in which the server writes its address for %s.
func ServerListenerTemplate(security ListenerSecurity) string {
	name := serverListenerPrefix
	if security != ListenerPlain {
		name += "/" + string(security)
	}
	return name + serverListenerAddress + "%s"
}

// IsServerListener reports whether a listener of this name is that of a gRPC
// server, and exists.
func IsServerListener(name string) bool {
	_, ok := ParseServerListener(name)
	return ok
}

// ParseServerListener reads the name of the listener of a gRPC server. It reports
// false for every other name.
func ParseServerListener(name string) (ServerListener, bool) {
	rest, ok := strings.CutPrefix(name, serverListenerPrefix)
	if !ok {
		return ServerListener{}, false
	}
	security, address, ok := strings.Cut(rest, serverListenerAddress)
	if !ok {
		return ServerListener{}, false
	}
	var l ServerListener
	switch security {
	case "":
	case "/" + string(ListenerMTLS):
		l.Security = ListenerMTLS
	default:
		return ServerListener{}, false
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return ServerListener{}, false
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || strconv.FormatUint(number, 10) != port {
		return ServerListener{}, false
	}
	if ip, err := netip.ParseAddr(host); err != nil || ip.Zone() != "" {
		return ServerListener{}, false
	}
	l.Host, l.Port = host, uint16(number)
	return l, true
}

// ServerListenerOf makes the listener: every call goes to the server's own
// handlers. It has no other filters, so nothing is authorized, limited or made to
// fail by it.
func ServerListenerOf(name string, l ServerListener) (*listenerv3.Listener, error) {
	router, err := Packed(&routerv3.Router{})
	if err != nil {
		return nil, err
	}
	manager, err := Packed(&hcmv3.HttpConnectionManager{
		StatPrefix: serverListenerPrefix,
		RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{
			Name: serverListenerPrefix,
			VirtualHosts: []*routev3.VirtualHost{{
				Name: serverListenerPrefix, Domains: []string{"*"},
				Routes: []*routev3.Route{{
					Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
					Action: &routev3.Route_NonForwardingAction{NonForwardingAction: &routev3.NonForwardingAction{}},
				}},
			}},
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	})
	if err != nil {
		return nil, err
	}
	chain := &listenerv3.FilterChain{
		Name: serverListenerPrefix,
		Filters: []*listenerv3.Filter{{
			Name:       "envoy.filters.network.http_connection_manager",
			ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: manager},
		}},
	}
	if chain.TransportSocket, err = listenerSocketOf(l.Security); err != nil {
		return nil, err
	}
	return &listenerv3.Listener{
		Name: name,
		Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: l.Host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(l.Port)},
		}}},
		FilterChains: []*listenerv3.FilterChain{chain},
	}, nil
}

// listenerSocketOf makes what a gRPC server speaks TLS by; nil for plaintext.
func listenerSocketOf(security ListenerSecurity) (*corev3.TransportSocket, error) {
	if security == ListenerPlain {
		return nil, nil //nolint:nilnil // there is none
	}
	instance := &tlsv3.CertificateProviderPluginInstance{InstanceName: ListenerCertificates}
	return tlsSocket(&tlsv3.DownstreamTlsContext{
		RequireClientCertificate: wrapperspb.Bool(true),
		CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateProviderInstance: instance,
			ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
				ValidationContext: &tlsv3.CertificateValidationContext{CaCertificateProviderInstance: instance},
			},
		},
	})
}
