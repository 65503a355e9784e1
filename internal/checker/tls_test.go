package checker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	healthv3 "github.com/envoyproxy/go-control-plane/envoy/service/health/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type clusterHealthCheck = healthv3.ClusterHealthCheck

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
func anyTLS(t *testing.T, ca []byte) []*clusterv3.Cluster_TransportSocketMatch {
	t.Helper()
	up := &tlsv3.UpstreamTlsContext{}
	if ca != nil {
		up.CommonTlsContext = &tlsv3.CommonTlsContext{ValidationContextType: &tlsv3.CommonTlsContext_ValidationContext{
			ValidationContext: &tlsv3.CertificateValidationContext{
				TrustedCa: &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: ca}},
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
	return c
}
