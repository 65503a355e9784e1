package resource

import (
	"net/netip"
	"strings"

	apiv2auth "github.com/envoyproxy/go-control-plane/envoy/api/v2/auth"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"

	"github.com/isobar-xds/isobar"
)

// TLSSocketName is the name by which Envoy knows its TLS.
const TLSSocketName = "envoy.transport_sockets.tls"

// SystemCAFile is where Envoy's own images, and most systems, keep the
// certificates that the system trusts.
const SystemCAFile = "/etc/ssl/certs/ca-certificates.crt"

// tlsSocketOf makes what Envoy uses TLS with endpoints by; nil for plaintext.
// Its files are read by Envoy.
func tlsSocketOf(t *isobar.EndpointTLS, p isobar.Protocol) (*corev3.TransportSocket, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	ca := t.CA
	if ca == isobar.SystemCA {
		ca = SystemCAFile
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			TrustedCa: clientFile(ca), MatchTypedSubjectAltNames: typedNamesOf(t.SubjectAltNames),
		}},
	}
	switch p {
	case isobar.ProtocolHTTP2, isobar.ProtocolGRPC:
		common.AlpnProtocols = []string{"h2"} // gRPC servers insist on it
	case isobar.ProtocolUnset, isobar.ProtocolHTTP1:
		common.AlpnProtocols = []string{"http/1.1"}
	case isobar.ProtocolAuto: // Envoy offers both
	}
	if t.Cert != "" {
		common.TlsCertificates = []*tlsv3.TlsCertificate{{CertificateChain: clientFile(t.Cert), PrivateKey: clientFile(t.Key)}}
	}
	return tlsSocket(&tlsv3.UpstreamTlsContext{Sni: t.SNI, CommonTlsContext: common})
}

// grpcSocketOf makes what gRPC clients with xDS credentials speak TLS by. It
// names entries of their bootstrap file, without which they refuse it.
func grpcSocketOf(t *isobar.EndpointTLS) (*corev3.TransportSocket, error) {
	if t == nil || t.GRPC == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	names := make([]*matcherv3.StringMatcher, len(t.SubjectAltNames))
	for i, name := range t.SubjectAltNames {
		names[i] = nameMatcher(name)
	}
	common := &tlsv3.CommonTlsContext{
		ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{ValidationContext: &tlsv3.CertificateValidationContext{
			CaCertificateProviderInstance: &tlsv3.CertificateProviderPluginInstance{InstanceName: t.GRPC.CA},
			MatchSubjectAltNames:          names, //nolint:staticcheck // gRPC knows no other field
		}},
	}
	if t.GRPC.Cert != "" {
		common.TlsCertificateProviderInstance = &tlsv3.CertificateProviderPluginInstance{InstanceName: t.GRPC.Cert}
	}
	return tlsSocket(&tlsv3.UpstreamTlsContext{Sni: t.SNI, CommonTlsContext: common})
}

func tlsSocket(context proto.Message) (*corev3.TransportSocket, error) {
	config, err := Packed(context)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: TLSSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config}}, nil
}

func clientFile(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// typedNamesOf makes matchers of subject alternative names, one of which has to
// match.
func typedNamesOf(names []string) []*tlsv3.SubjectAltNameMatcher {
	out := make([]*tlsv3.SubjectAltNameMatcher, len(names))
	for i, name := range names {
		out[i] = &tlsv3.SubjectAltNameMatcher{SanType: sanTypeOf(name), Matcher: nameMatcher(name)}
	}
	return out
}

func sanTypeOf(name string) tlsv3.SubjectAltNameMatcher_SanType {
	if strings.Contains(name, "://") {
		return tlsv3.SubjectAltNameMatcher_URI
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	}
	return tlsv3.SubjectAltNameMatcher_DNS
}

func nameMatcher(name string) *matcherv3.StringMatcher {
	if prefix, ok := strings.CutSuffix(name, "*"); ok {
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}}
	}
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}}
}

// socketV2 translates the TLS of a cluster. Providers of certificates came
// later, so gRPC clients get none.
func socketV2(s *corev3.TransportSocket) (*corev3.TransportSocket, error) {
	if s == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	context := &tlsv3.UpstreamTlsContext{}
	if err := s.GetTypedConfig().UnmarshalTo(context); err != nil {
		return nil, err
	}
	validation := context.GetCommonTlsContext().GetValidationContext()
	if validation.GetCaCertificateProviderInstance() != nil {
		return nil, nil //nolint:nilnil // as above
	}
	for _, m := range validation.GetMatchTypedSubjectAltNames() {
		validation.MatchSubjectAltNames = append(validation.MatchSubjectAltNames, m.GetMatcher()) //nolint:staticcheck // the field of v2
	}
	validation.MatchTypedSubjectAltNames = nil
	old := &apiv2auth.UpstreamTlsContext{}
	encoded, err := reread(context, old)
	if err != nil {
		return nil, err
	}
	return &corev3.TransportSocket{Name: TLSSocketName, ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: anyOf(old, encoded)}}, nil
}
