package checker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// tlsSettings is how probes of a check do TLS.
type tlsSettings struct {
	config *tls.Config // not to be changed
}

const (
	socketTLS = "envoy.transport_sockets.tls"
	socketRaw = "envoy.transport_sockets.raw_buffer"
)

// chooseSocket returns the first of a cluster's sockets all of whose labels
// stand in the check's criteria, nil for none: plaintext. A socket without
// labels fits every check.
func chooseSocket(matches []*clusterv3.Cluster_TransportSocketMatch, criteria *structpb.Struct) *corev3.TransportSocket {
	have := criteria.GetFields()
next:
	for _, m := range matches {
		for name, want := range m.GetMatch().GetFields() {
			if got, ok := have[name]; !ok || !proto.Equal(got, want) {
				continue next
			}
		}
		return m.GetTransportSocket()
	}
	return nil
}

// newTLS reads a transport socket; nil settings mean plaintext.
func newTLS(s *corev3.TransportSocket, alpn []string) (*tlsSettings, error) {
	if s == nil || s.GetName() == socketRaw {
		return nil, nil //nolint:nilnil // plaintext needs no settings
	}
	up := new(tlsv3.UpstreamTlsContext)
	if s.GetTypedConfig() == nil || !s.GetTypedConfig().MessageIs(up) {
		return nil, fmt.Errorf("transport socket %q: want %s with an UpstreamTlsContext, or %s", short(s.GetName()), socketTLS, socketRaw)
	}
	if err := s.GetTypedConfig().UnmarshalTo(up); err != nil {
		return nil, fmt.Errorf("transport socket: %w", err)
	}
	config := &tls.Config{
		// Envoy checks a server's certificate against what the context says,
		// not against a name; verifyBy does so below.
		InsecureSkipVerify: true, //nolint:gosec // see above
		ServerName:         up.GetSni(),
		NextProtos:         up.GetCommonTlsContext().GetAlpnProtocols(),
		MinVersion:         tls.VersionTLS12,
	}
	if len(alpn) > 0 {
		config.NextProtos = alpn
	}
	for _, p := range config.NextProtos {
		if p == "" || len(p) > 255 {
			return nil, errors.New("alpn_protocols: want names of 1 to 255 bytes")
		}
	}
	common := up.GetCommonTlsContext()
	if err := setVersions(config, common.GetTlsParams()); err != nil {
		return nil, err
	}
	if err := setCertificates(config, common); err != nil {
		return nil, err
	}
	if err := setValidation(config, common); err != nil {
		return nil, err
	}
	return &tlsSettings{config: config}, nil
}

func setVersions(config *tls.Config, p *tlsv3.TlsParameters) error {
	versions := map[tlsv3.TlsParameters_TlsProtocol]uint16{
		tlsv3.TlsParameters_TLSv1_0: tls.VersionTLS10, tlsv3.TlsParameters_TLSv1_1: tls.VersionTLS11,
		tlsv3.TlsParameters_TLSv1_2: tls.VersionTLS12, tlsv3.TlsParameters_TLSv1_3: tls.VersionTLS13,
	}
	if v := p.GetTlsMinimumProtocolVersion(); v != tlsv3.TlsParameters_TLS_AUTO {
		config.MinVersion = versions[v]
	}
	if v := p.GetTlsMaximumProtocolVersion(); v != tlsv3.TlsParameters_TLS_AUTO {
		config.MaxVersion = versions[v]
	}
	if config.MaxVersion != 0 && config.MaxVersion < config.MinVersion {
		return errors.New("tls_params: the maximum version is below the minimum")
	}
	return nil
}

func setCertificates(config *tls.Config, common *tlsv3.CommonTlsContext) error {
	if len(common.GetTlsCertificateSdsSecretConfigs()) > 0 || common.GetTlsCertificateProviderInstance() != nil {
		return errors.New("tls_certificates: only inline certificates are supported, no SDS and no provider")
	}
	for _, c := range common.GetTlsCertificates() {
		chain, err := inline(c.GetCertificateChain())
		if err != nil {
			return fmt.Errorf("certificate_chain: %w", err)
		}
		key, err := inline(c.GetPrivateKey())
		if err != nil {
			return fmt.Errorf("private_key: %w", err)
		}
		pair, err := tls.X509KeyPair(chain, key)
		if err != nil {
			return fmt.Errorf("tls_certificates: %w", err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	return nil
}

// inline reads a data source that stands in the message: a server shall not
// make this process read files.
func inline(d *corev3.DataSource) ([]byte, error) {
	switch kind := d.GetSpecifier().(type) {
	case *corev3.DataSource_InlineBytes:
		return kind.InlineBytes, nil
	case *corev3.DataSource_InlineString:
		return []byte(kind.InlineString), nil
	default:
		return nil, errors.New("want inline_bytes or inline_string")
	}
}

// setValidation checks servers' certificates as the validation context says;
// without one, as in Envoy, any certificate will do.
func setValidation(config *tls.Config, common *tlsv3.CommonTlsContext) error {
	if common.GetValidationContextType() == nil {
		return nil
	}
	v := common.GetValidationContext()
	switch {
	case v == nil:
		return errors.New("validation_context: only an inline one is supported, no SDS and no provider")
	case v.GetCrl() != nil, len(v.GetVerifyCertificateSpki()) > 0, len(v.GetVerifyCertificateHash()) > 0,
		v.GetAllowExpiredCertificate(), v.GetCustomValidatorConfig() != nil, v.GetCaCertificateProviderInstance() != nil,
		v.GetRequireSignedCertificateTimestamp().GetValue():
		return errors.New("validation_context: only trusted_ca, system_root_certs and subject alternative names are supported")
	}
	names, err := newNames(v)
	if err != nil {
		return err
	}
	if v.GetTrustChainVerification() == tlsv3.CertificateValidationContext_ACCEPT_UNTRUSTED {
		return nil
	}
	var roots *x509.CertPool
	switch {
	case v.GetTrustedCa() != nil:
		pem, err := inline(v.GetTrustedCa())
		if err != nil {
			return fmt.Errorf("trusted_ca: %w", err)
		}
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return errors.New("trusted_ca: no certificate in it")
		}
	case v.GetSystemRootCerts() != nil: // nil roots are the system's
	case len(names) > 0:
		return errors.New("subject alternative names are checked only with a trusted_ca")
	default:
		return nil
	}
	config.VerifyConnection = verifyBy(roots, names)
	return nil
}

// verifyBy checks the chain of the server's certificate and one of its names.
func verifyBy(roots *x509.CertPool, names []nameMatcher) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("the server has no certificate")
		}
		leaf := cs.PeerCertificates[0]
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range cs.PeerCertificates[1:] {
			opts.Intermediates.AddCert(c)
		}
		if _, err := leaf.Verify(opts); err != nil {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		for _, n := range names {
			if n.matches(leaf) {
				return nil
			}
		}
		return errors.New("no subject alternative name of the certificate matches")
	}
}

// open dials and does the handshake where there is TLS.
func (l *link) open(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dial(ctx, network, address)
	if err != nil || l.tls == nil {
		return conn, err
	}
	config := l.tls.config
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // an IP, which is not sent as SNI
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// nameMatcher wants a subject alternative name of one kind.
type nameMatcher struct {
	kind  tlsv3.SubjectAltNameMatcher_SanType // unspecified: any kind
	match func(string) bool
}

func newNames(v *tlsv3.CertificateValidationContext) ([]nameMatcher, error) {
	var out []nameMatcher
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		if m.GetSanType() == tlsv3.SubjectAltNameMatcher_SAN_TYPE_UNSPECIFIED || m.GetSanType() > tlsv3.SubjectAltNameMatcher_IP_ADDRESS {
			return nil, errors.New("match_typed_subject_alt_names: want san_type EMAIL, DNS, URI or IP_ADDRESS")
		}
		match, err := newMatcher(m.GetMatcher())
		if err != nil {
			return nil, fmt.Errorf("match_typed_subject_alt_names: %w", err)
		}
		out = append(out, nameMatcher{kind: m.GetSanType(), match: match})
	}
	for _, m := range v.GetMatchSubjectAltNames() { //nolint:staticcheck // servers still send it
		match, err := newMatcher(m)
		if err != nil {
			return nil, fmt.Errorf("match_subject_alt_names: %w", err)
		}
		out = append(out, nameMatcher{match: match})
	}
	return out, nil
}

func (n *nameMatcher) matches(c *x509.Certificate) bool {
	wants := func(kind tlsv3.SubjectAltNameMatcher_SanType) bool {
		return n.kind == kind || n.kind == tlsv3.SubjectAltNameMatcher_SAN_TYPE_UNSPECIFIED
	}
	var names []string
	if wants(tlsv3.SubjectAltNameMatcher_DNS) {
		names = append(names, c.DNSNames...)
	}
	if wants(tlsv3.SubjectAltNameMatcher_EMAIL) {
		names = append(names, c.EmailAddresses...)
	}
	if wants(tlsv3.SubjectAltNameMatcher_URI) {
		for _, u := range c.URIs {
			names = append(names, u.String())
		}
	}
	if wants(tlsv3.SubjectAltNameMatcher_IP_ADDRESS) {
		for _, ip := range c.IPAddresses {
			names = append(names, ip.String())
		}
	}
	return slices.ContainsFunc(names, n.match)
}
