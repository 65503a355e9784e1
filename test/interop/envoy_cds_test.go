package interop

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/isobar-xds/isobar/internal/identity/identitytest"
)

// startProtocolBackend runs an HTTP server, with TLS if settings are given, that
// answers with its name, the protocol, the server name that the client asked for and
// the SPIFFE ID that it showed. It waits before each answer.
func startProtocolBackend(t *testing.T, name string, settings *tls.Config, wait time.Duration) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{ReadHeaderTimeout: patience, Protocols: protocols, TLSConfig: settings, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), wait)
		said := []string{name, r.Proto}
		if r.TLS != nil {
			said = append(said, r.TLS.ServerName)
			for _, c := range r.TLS.PeerCertificates {
				for _, u := range c.URIs {
					said = append(said, u.String())
				}
			}
		}
		_, _ = io.WriteString(w, strings.Join(said, " "))
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if settings != nil {
			_ = server.ServeTLS(lis, "", "") // ends with Close
			return
		}
		_ = server.Serve(lis) // as above
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return lis.Addr().String()
}

// startSecureBackend is startBackend over TLS.
func startSecureBackend(t *testing.T, name string, settings *tls.Config) (address string) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &backend{name: name, server: grpc.NewServer(grpc.Creds(credentials.NewTLS(settings)))}
	testpb.RegisterTestServiceServer(b.server, b)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.server.Serve(lis) // ends with kill
	}()
	t.Cleanup(func() {
		b.kill()
		<-done
	})
	return lis.Addr().String()
}

// serverOf is TLS of a server with a certificate of the authority. It asks for the
// certificates of clients.
func serverOf(t *testing.T, ca *identitytest.CA, leaf identitytest.Leaf) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair(ca.Issue(leaf))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: roots, MinVersion: tls.VersionTLS12}
}

// cdsCase is a service, and what its endpoint says when it is asked through Envoy.
type cdsCase struct {
	service  string
	settings string // further fields, in YAML
	address  string
	http2    bool   // the request
	grpc     bool   // the request
	want     string // "" = Envoy does not take the endpoint's certificate
}

// Clusters of all settings work in real Envoys, which refuse none of them.
func TestEnvoyClusters(t *testing.T) {
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) { clusters(t, version) })
	}
}

func clusters(t *testing.T, version string) {
	t.Helper()
	ca, other, dir := identitytest.NewCA(t), identitytest.NewCA(t), t.TempDir()
	const spiffe = "spiffe://prod.example/ns/shop/sa/envoy"
	files := ca.Write(dir, identitytest.Leaf{URIs: []string{spiffe}})
	foreign := other.Write(t.TempDir(), identitytest.Leaf{})
	named := serverOf(t, ca, identitytest.Leaf{DNS: []string{"checkout.example"}})
	identified := serverOf(t, ca, identitytest.Leaf{URIs: []string{"spiffe://prod.example/ns/shop/sa/checkout"}})
	plain := startProtocolBackend(t, "b", nil, 0)
	secure := startProtocolBackend(t, "b", named, 0)
	withID := startProtocolBackend(t, "b", identified, 0)
	calls := startBackend(t, "g", "").address
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	sni := func(ca string) string { return fmt.Sprintf("tls: {ca: %q, sni: checkout.example}", ca) }
	names := func(list string) string {
		return fmt.Sprintf("tls: {ca: %q, subject_alt_names: [%s]}", files.ClientCA, list)
	}
	cases := []cdsCase{
		{"http1", "", plain, false, false, "b HTTP/1.1"},
		{"http1-for-2", "protocol: http1", plain, true, false, "b HTTP/1.1"},
		{"http2", "protocol: http2", plain, false, false, "b HTTP/2.0"},
		{"auto-1", "protocol: auto", plain, false, false, "b HTTP/1.1"},
		{"auto-2", "protocol: auto", plain, true, false, "b HTTP/2.0"},
		{"grpc", "protocol: grpc", calls, true, true, "g"},
		{"grpc-check", "health_checks: [{grpc: {}}]", calls, true, true, "g"},
		{"grpc-tls", "protocol: grpc\n    " + sni(files.ClientCA), startSecureBackend(t, "g", named), true, true, "g"},
		{"tls-1", sni(files.ClientCA), secure, false, false, "b HTTP/1.1 checkout.example"},
		{"tls-2", "protocol: http2\n    " + sni(files.ClientCA), secure, false, false, "b HTTP/2.0 checkout.example"},
		{"tls-auto", "protocol: auto\n    " + sni(files.ClientCA), secure, false, false, "b HTTP/2.0 checkout.example"},
		{"spiffe", names(`"spiffe://prod.example/ns/shop/*"`), withID, false, false, "b HTTP/1.1 "},
		{
			"spiffe-both", fmt.Sprintf("tls: {ca: %q, subject_alt_names: [other.example, \"spiffe://prod.example/ns/shop/sa/checkout\"], cert: %q, key: %q}", files.ClientCA, files.Cert, files.Key),
			withID, false, false, "b HTTP/1.1  " + spiffe,
		},
		{"address", names(`"127.0.0.1"`), startProtocolBackend(t, "b", serverOf(t, ca, identitytest.Leaf{}), 0), false, false, "b HTTP/1.1 "},
		{"other-name", names(`"spiffe://prod.example/ns/shop/sa/pay"`), withID, false, false, ""},
		{"other-prefix", names(`"spiffe://prod.example/ns/pay/*"`), withID, false, false, ""},
		{"other-authority", sni(foreign.ClientCA), secure, false, false, ""},
		{"system-authority", sni("system"), secure, false, false, ""},
		{"long-names", fmt.Sprintf("tls: {ca: %q, sni: %q, subject_alt_names: [checkout.example, \"urn://%s\", \"2001:db8::1\"]}", files.ClientCA, long, strings.Repeat("%s", 1000)), secure, false, false, "b HTTP/1.1 " + long},
		{"settings", everySetting, plain, false, false, "b HTTP/1.1"},
	}
	var config strings.Builder
	config.WriteString("services:\n")
	for _, c := range cases {
		fmt.Fprintf(&config, "  - name: %s\n    localities: [{locality: us/a, endpoints: [%q]}]\n", c.service, c.address)
		if c.settings != "" {
			fmt.Fprintf(&config, "    %s\n", c.settings)
		}
	}
	slow, fast, far := startProtocolBackend(t, "slow", nil, 100*time.Millisecond), startProtocolBackend(t, "fast", nil, 0), startProtocolBackend(t, "far", nil, 0)
	for _, settings := range []string{"lb_policy: least_request", "orca: true"} {
		name, _, _ := strings.Cut(settings, ":")
		fmt.Fprintf(&config, "  - name: %s\n    policy: fixed\n    %s\n    localities:\n      - {locality: us/a, weight: 3, endpoints: [%q, %q]}\n      - {locality: us/b, weight: 1, endpoints: [%q]}\n",
			name, settings, slow, fast, far)
	}
	s := startTicking(t, 5*time.Minute, config.String())
	p := startEnvoy(t, version, routed(t, s))
	if err := p.AwaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	listener, err := p.Listener(t.Context(), "in")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.service, func(t *testing.T) {
			if c.want == "" {
				c.distrusts(t, p, listener)
				return
			}
			c.ask(t, listener)
		})
	}
	t.Run("least_request", func(t *testing.T) { picksWithin(t, listener, "lb_policy", 0.2) })
	t.Run("orca", func(t *testing.T) { picksWithin(t, listener, "orca", 0.5) })
	client, err := s.client("envoy")
	if err != nil {
		t.Fatal(err)
	}
	for _, ct := range client.Types {
		if ct.Rejected > 0 {
			t.Errorf("Envoy refuses %+v", ct)
		}
	}
}

// everySetting has all that a service can say of its clients, but TLS.
const everySetting = `connect_timeout: 1ms
    circuit_breakers: {max_connections: 1, max_pending_requests: 1, max_requests: 1, max_retries: 4294967295}
    lb_policy: least_request
    healthy_panic_threshold: 100
    outlier_detection:
      {interval: 1ms, base_ejection_time: 24h, max_ejection_time: 24h, max_ejection_time_jitter: 24h, max_ejection_percent: 0, always_eject_one_host: true,
       failure_percentage_threshold: 0, failure_percentage_minimum_hosts: 4294967295, failure_percentage_request_volume: 1,
       enforcing_failure_percentage: 1, enforcing_failure_percentage_local_origin: 2, consecutive_5xx: 4294967295, enforcing_consecutive_5xx: 3,
       consecutive_gateway_failure: 1, enforcing_consecutive_gateway_failure: 0, split_external_local_origin_errors: true,
       consecutive_local_origin_failure: 7, enforcing_consecutive_local_origin_failure: 4, success_rate_minimum_hosts: 1,
       success_rate_request_volume: 1, success_rate_stdev_factor: 4294967295, enforcing_success_rate: 0, enforcing_local_origin_success_rate: 100}`

// ask sends requests until the endpoint answers as wanted.
func (c *cdsCase) ask(t *testing.T, listener string) {
	t.Helper()
	send := c.get
	if c.grpc {
		send = c.call
	}
	await(t, "answer", func() error {
		got, err := send(t.Context(), listener)
		if err == nil && got != c.want {
			err = fmt.Errorf("got %q, want %q", got, c.want)
		}
		return err
	})
}

// distrusts sends requests until Envoy has refused the certificate; none gets
// through.
func (c *cdsCase) distrusts(t *testing.T, p *proxy, listener string) {
	t.Helper()
	await(t, "refusal of the certificate", func() error {
		if got, err := c.get(t.Context(), listener); err == nil {
			t.Fatalf("Envoy sends to an endpoint of another name or authority, which answers %q", got)
		}
		stats, err := p.Stats(t.Context(), `^cluster\.`+c.service+`\.ssl\.fail_verify`)
		for _, n := range stats {
			if n > 0 {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%v", stats))
	})
}

func (c *cdsCase) get(ctx context.Context, listener string) (string, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!c.http2)
	protocols.SetUnencryptedHTTP2(c.http2)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener+"/", http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Service", c.service)
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// call makes a gRPC call.
func (c *cdsCase) call(ctx context.Context, listener string) (string, error) {
	conn, err := grpc.NewClient("passthrough:///"+listener, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	var head metadata.MD
	ctx = metadata.AppendToOutgoingContext(ctx, "x-service", c.service)
	_, err = testpb.NewTestServiceClient(conn).EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&head))
	return strings.Join(head.Get("hostname"), ","), err
}

// picksWithin sends requests, several at once, and wants three quarters to go to
// the near locality, and a part of these to its slow endpoint.
func picksWithin(t *testing.T, listener, service string, slow float64) {
	t.Helper()
	const workers, each = 8, 100
	c := cdsCase{service: service}
	c.want = "."
	await(t, "answer", func() error {
		_, err := c.get(t.Context(), listener)
		return err
	})
	var mu sync.Mutex
	got := map[string]float64{}
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				name, err := c.get(t.Context(), listener)
				if err != nil {
					name = err.Error()
				}
				mu.Lock()
				got[strings.TrimSuffix(name, " HTTP/1.1")]++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	near := got["slow"] + got["fast"]
	if math.Abs(near/(workers*each)-0.75) > 0.06 || math.Abs(got["slow"]/near-slow) > 0.15 {
		t.Errorf("got %v of %d, want 75%% in the near locality and %.0f%% of these at the slow endpoint", got, workers*each, 100*slow)
	}
}
