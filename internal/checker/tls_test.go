package checker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type (
	clusterHealthCheck     = healthv3.ClusterHealthCheck
	clusterEndpointsHealth = healthv3.ClusterEndpointsHealth
)

func no() *wrapperspb.BoolValue { return wrapperspb.Bool(false) }

func disabled() *endpointv3.Endpoint_HealthCheckConfig {
	return &endpointv3.Endpoint_HealthCheckConfig{DisableActiveHealthCheck: true}
}

func healthCheckConfig(hostname string, port uint32, address string) *endpointv3.Endpoint_HealthCheckConfig {
	c := &endpointv3.Endpoint_HealthCheckConfig{Hostname: hostname, PortValue: port}
	if address != "" {
		c.Address = socket(address)
	}
	return c
}

// anyTLS is TLS for all checks of a cluster; without ca any certificate does.
func anyTLS(t *testing.T, ca []byte, names ...*tlsv3.SubjectAltNameMatcher) []*clusterv3.Cluster_TransportSocketMatch {
	t.Helper()
	up := &tlsv3.UpstreamTlsContext{}
	if ca != nil {
		up.CommonTlsContext = &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: ca}},

				MatchTypedSubjectAltNames: names,
			},
		}}
	}
	config, err := anypb.New(up)
	if err != nil {
		t.Fatal(err)
	}
	return []*clusterv3.Cluster_TransportSocketMatch{{Name: "tls", TransportSocket: &corev3.TransportSocket{
		Name: "envoy.transport_sockets.tls", ConfigType: &corev3.TransportSocket_TypedConfig{TypedConfig: config},
	}}}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

// otherAuthority is a certificate that signed nothing.
func otherAuthority(t *testing.T) *x509.Certificate {
	t.Helper()
	c, _ := authority(t)
	return c
}

// authority is a certificate that signs itself, and its key.
func authority(t *testing.T) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c, key
}

// TestTLS: TLS where there is none, none where there is TLS, certificates of
// the wrong authority and of the wrong name.
func TestTLS(t *testing.T) {
	plain, secure := newWeb(t, false, http1Only), newWeb(t, true, http1Only)
	right, other := pemOf(secure.Certificate()), pemOf(otherAuthority(t))
	wrap := func(name, address string, ca []byte, names ...*tlsv3.SubjectAltNameMatcher) *clusterHealthCheck {
		c := cluster(name, patiently(overHTTP()), address)
		c.TransportSocketMatches = anyTLS(t, ca, names...)
		return c
	}
	named := func(kind tlsv3.SubjectAltNameMatcher_SanType, suffix string) *tlsv3.SubjectAltNameMatcher {
		return &tlsv3.SubjectAltNameMatcher{SanType: kind, Matcher: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: suffix}, IgnoreCase: true,
		}}
	}
	dns, ip := tlsv3.SubjectAltNameMatcher_DNS, tlsv3.SubjectAltNameMatcher_IP_ADDRESS
	s := start(t).stream()
	s.specify(t, spec(
		wrap("tls to plain", plain.address(), nil), cluster("plain to tls", patiently(overHTTP()), secure.address()),
		wrap("wrong authority", secure.address(), other),
		wrap("wrong name", secure.address(), right, named(dns, ".shop"), named(ip, ".7")),
		wrap("name of another kind", secure.address(), right, named(tlsv3.SubjectAltNameMatcher_URI, "example.com")),
		wrap("right authority", secure.address(), right),
		wrap("right name", secure.address(), right, named(dns, ".shop"), named(dns, "EXAMPLE.com")),
		wrap("right address", secure.address(), right, named(ip, "127.0.0.1")),
	))
	for _, name := range []string{"right authority", "right name", "right address"} {
		s.until(t, name, secure.address(), healthy)
	}
	for range 10 { // more probes of the others
		s.next(t)
	}
	for name, address := range map[string]string{
		"tls to plain": plain.address(), "plain to tls": secure.address(), "wrong authority": secure.address(),
		"wrong name": secure.address(), "name of another kind": secure.address(),
	} {
		if got, _ := statusIn(s.next(t), name, address); got != unhealthy {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestSocketMatch: the first socket whose labels the check names is taken, and
// none is plaintext.
func TestSocketMatch(t *testing.T) {
	plain, secure := newWeb(t, false, http1Only), newWeb(t, true, http1Only)
	label := func(v string) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"use": structpb.NewStringValue(v)}}
	}
	matches := anyTLS(t, pemOf(otherAuthority(t)))
	matches = append(matches, anyTLS(t, nil)...)
	matches[0].Match, matches[1].Match = label("strict"), label("any")
	with := func(name, use, address string) *clusterHealthCheck {
		hc := overHTTP()
		if use != "" {
			hc.TransportSocketMatchCriteria = label(use)
		}
		c := cluster(name, hc, address)
		c.TransportSocketMatches = matches
		return c
	}
	s := start(t).stream()
	s.specify(t, spec(with("strict", "strict", secure.address()), with("any", "any", secure.address()),
		with("unknown", "other", plain.address()), with("none", "", plain.address())))
	s.until(t, "any", secure.address(), healthy)
	s.until(t, "unknown", plain.address(), healthy)
	s.until(t, "none", plain.address(), healthy)
	s.until(t, "strict", secure.address(), unhealthy)
}

// TestClientCertificate: a server that wants to know the checker sees the
// certificate of the cluster.
func TestClientCertificate(t *testing.T) {
	ca, key := authority(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	srv.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	address := srv.Listener.Addr().String()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	bytesOf := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	config, err := anypb.New(&tlsv3.UpstreamTlsContext{Sni: "example.com", CommonTlsContext: &tlsv3.CommonTlsContext{
		TlsCertificates: []*tlsv3.TlsCertificate{{
			CertificateChain: bytesOf(pemOf(ca)), PrivateKey: bytesOf(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	known, unknown := cluster("known", overHTTP(), address), cluster("unknown", overHTTP(), address)
	known.TransportSocketMatches, unknown.TransportSocketMatches = anyTLS(t, nil), anyTLS(t, nil)
	known.TransportSocketMatches[0].TransportSocket.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
	s := start(t).stream()
	s.specify(t, spec(known, unknown))
	s.until(t, "known", address, healthy)
	s.until(t, "unknown", address, unhealthy)
}
