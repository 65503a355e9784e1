package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/health"
)

// checkerBootstrap is the bootstrap of an Envoy that does nothing but probe
// endpoints for a server, at most so many; 0 leaves that to the server.
func checkerBootstrap(id, locality, server string, endpoints int) string {
	region, zone, _ := strings.Cut(locality, "/")
	host, port, _ := net.SplitHostPort(server)
	metadata := "{}"
	if endpoints > 0 {
		metadata = fmt.Sprintf("{isobar: {max_endpoints: %d}}", endpoints)
	}
	return fmt.Sprintf(`node: {id: %q, cluster: checkers, locality: {region: %q, zone: %q}, metadata: %s}
hds_config:
  api_type: GRPC
  transport_api_version: V3
  grpc_services: [{envoy_grpc: {cluster_name: isobar}}]
static_resources:
  clusters:
    - name: isobar
      type: STATIC
      connect_timeout: 1s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: isobar
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %q, port_value: %s}}}}]}]
`, id, region, zone, metadata, host, port)
}

// startChecker runs an Envoy that probes for the server until the test ends.
func startChecker(t *testing.T, version, id, locality string, s *isobar) *proxy {
	t.Helper()
	return startEnvoy(t, version, checkerBootstrap(id, locality, s.xds, 0))
}

// alive fails the test if an Envoy has ended.
func (p *proxy) alive(t *testing.T) {
	t.Helper()
	select {
	case <-p.Exited():
		t.Fatalf("Envoy ended: %v", p.Err())
	default:
	}
}

// checked is a service as the configuration file has it, with health checks.
type checked struct {
	Name       string            `json:"name"`
	Checkers   map[string]int    `json:"checkers,omitempty"`
	Checks     []map[string]any  `json:"health_checks"`
	Localities []checkedLocality `json:"localities"`
}

type checkedLocality struct {
	Locality  string            `json:"locality"`
	Endpoints []checkedEndpoint `json:"endpoints"`
}

type checkedEndpoint struct {
	Address string         `json:"address"`
	Check   map[string]any `json:"health_check_config,omitempty"`
}

// byOne is for verdicts of a single checker.
var byOne = map[string]int{"count": 1, "domains": 1}

// servicesText writes services as the configuration file has them.
func servicesText(t *testing.T, services ...checked) string {
	t.Helper()
	text, err := json.Marshal(services)
	if err != nil {
		t.Fatal(err)
	}
	return "services: " + string(text) + "\n"
}

// verdicts is what is believed of the endpoints of a service, by address.
func (s *isobar) verdicts(service string) (map[string]health.Verdict, error) {
	var list admin.VerdictList
	if err := s.get("/v1/verdicts?service="+service, &list); err != nil {
		return nil, err
	}
	out := map[string]health.Verdict{}
	for _, r := range list.Services {
		for _, v := range r.Endpoints {
			out[v.Address] = v
		}
	}
	return out, nil
}

// designated reports whether a checker is connected and told to probe so many
// endpoints.
func (s *isobar) designated(checker string, endpoints int) error {
	var list admin.VerdictList
	if err := s.get("/v1/verdicts", &list); err != nil {
		return err
	}
	for _, c := range list.Checkers {
		if c.ID == checker && c.Designated == endpoints {
			return nil
		}
	}
	return fmt.Errorf("%s has not %d endpoints to probe among %+v", checker, endpoints, list.Checkers)
}

// attention is what the server's status says needs attention.
func (s *isobar) attention() (string, error) {
	var status admin.Status
	err := s.get("/v1/status", &status)
	return strings.Join(admin.AttentionTexts(status.Attention), "\n"), err
}

// probedWeb is an HTTP backend that keeps the last request for each target. It
// takes hosts and paths that a server of the library would refuse.
type probedWeb struct {
	address string

	mu       sync.Mutex
	requests map[string]textproto.MIMEHeader // by request target
	closed   bool
	open     map[net.Conn]bool
}

func startProbedWeb(t *testing.T) *probedWeb {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &probedWeb{address: lis.Addr().String(), requests: map[string]textproto.MIMEHeader{}, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			if b.keep(conn) {
				all.Go(func() { b.serve(conn) })
			}
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		b.end()
		all.Wait()
	})
	return b
}

// keep remembers a connection, or closes it because the test is over.
func (b *probedWeb) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close()
		return false
	}
	b.open[conn] = true
	return true
}

func (b *probedWeb) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for conn := range b.open {
		_ = conn.Close()
	}
}

func (b *probedWeb) serve(conn net.Conn) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.open, conn)
		_ = conn.Close()
	}()
	r := textproto.NewReader(bufio.NewReader(conn))
	for {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		header, err := r.ReadMIMEHeader()
		if err != nil {
			return
		}
		target := strings.TrimSuffix(strings.TrimPrefix(line, "GET "), " HTTP/1.1")
		b.mu.Lock()
		b.requests[target] = header
		b.mu.Unlock()
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

// got reports whether a target was asked for, and with which value of a header.
func (b *probedWeb) got(target, name, value string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	header, ok := b.requests[target]
	if !ok {
		return errors.New("no probe of " + target)
	}
	if got := header.Get(name); name != "" && got != strings.Trim(value, " \t") {
		return fmt.Errorf("header %s is %.100q, want %.100q", name, got, value)
	}
	return nil
}
