package interop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isobar-xds/isobar/internal/fleet/envoy"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestLoadReportsPage holds the page about load reports against the cases.
func TestLoadReportsPage(t *testing.T) {
	t.Parallel()
	page := string(read(t, "../../docs/reference/load-reports.md"))
	for _, c := range countCases {
		if row := c.row(); !strings.Contains(page, "\n"+row+"\n") {
			t.Errorf("the page lacks\n%s", row)
		}
	}
}

// isobarWant is what Isobar takes the counts for: attempts land, which are
// what was issued, or what ended where that is more, and what was dropped is
// demand besides.
func (c *countCase) isobarWant() isobarCount {
	landed := float64(max(c.want.issued, c.want.success+c.want.errors))
	out := isobarCount{demand: landed + float64(c.want.dropped), landed: landed, errors: float64(c.want.errors), dropped: float64(c.want.dropped)}
	if c.isobar != nil {
		c.isobar(&out)
	}
	return out
}

// lrsSite is an Envoy with a service for each case.
type lrsSite struct {
	http, tcp string // its listeners
	tap       *tap
	isobar    *isobar
	client    http.Client
	calls     *grpc.ClientConn
	ids       chan int
}

// TestEnvoyLoadReports: what Envoy counts of each kind of request, and what
// that is to Isobar: demand, what lands, errors and drops.
func TestEnvoyLoadReports(t *testing.T) {
	t.Parallel()
	for _, version := range envoyVersions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			l := startLRSSite(t, version)
			if t.Run("counts", func(t *testing.T) { l.counts(t, version) }) && version == envoy.Newest {
				seen.fact(envoyName(version, adsStream), "`total_dropped_requests` includes drops by category")
			}
			if version == envoy.Newest {
				t.Run("Isobar", l.demands)
			}
		})
	}
}

// counts sends the requests of all cases once, and compares what is reported. It
// has three tries: the oldest version leaves out a locality to which nothing was
// issued since the last report, and with it what has ended there; and on a busy
// machine a timeout may pass before a request has begun.
func (l *lrsSite) counts(t *testing.T, version string) {
	t.Helper()
	const tries = 3
	wrong := map[string]string{}
	for _, c := range countCases {
		wrong[c.name] = "not counted"
	}
	for range tries {
		got := l.count(t)
		for _, c := range countCases {
			want, is := c.want, got[c.name]
			if version == envoy.Oldest && c.oldest != nil {
				c.oldest(&want)
			}
			if c.errorsUpTo > 0 && is.errors <= c.errorsUpTo {
				want.errors = is.errors
			}
			if is == want {
				delete(wrong, c.name)
			} else if wrong[c.name] != "" {
				wrong[c.name] = fmt.Sprintf("Envoy counts %+v, want %+v", is, want)
			}
		}
		if len(wrong) == 0 {
			return
		}
	}
	for name, text := range wrong {
		t.Errorf("%s: %s", name, text)
	}
}

// count sends the requests of all cases once, right after a report, and adds up
// what Envoy reports of them.
func (l *lrsSite) count(t *testing.T) map[string]envoyCount {
	t.Helper()
	l.awaitReports(t, 1)
	from := len(l.tap.messages("StreamLoadStats"))
	l.burst(t)
	l.awaitReports(t, 2)
	got := map[string]envoyCount{}
	for _, m := range l.tap.reports(t, from) {
		for _, s := range m.GetClusterStats() {
			c := got[s.GetClusterName()]
			c.dropped += s.GetTotalDroppedRequests()
			for _, d := range s.GetDroppedRequests() {
				if d.GetCategory() != "drop_overload" {
					t.Errorf("%s: category %q", s.GetClusterName(), d.GetCategory())
				}
				c.category += d.GetDroppedCount()
			}
			for _, s := range s.GetUpstreamLocalityStats() {
				c.issued += s.GetTotalIssuedRequests()
				c.success += s.GetTotalSuccessfulRequests()
				c.errors += s.GetTotalErrorRequests()
			}
			got[s.GetClusterName()] = c
		}
	}
	return got
}

// awaitReports waits for n further load reports.
func (l *lrsSite) awaitReports(t *testing.T, n int) {
	t.Helper()
	before := len(l.tap.messages("StreamLoadStats"))
	await(t, "further load reports", func() error {
		if now := len(l.tap.messages("StreamLoadStats")); now < before+n {
			return fmt.Errorf("%d of %d", now-before, n)
		}
		return nil
	})
}

// burst sends all requests of all cases at once and returns when they are over.
func (l *lrsSite) burst(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range countCases {
		for i := range c.number() {
			all.Go(func() { c.send(ctx, l, c.path(i, <-l.ids), i) })
		}
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		t.Fatal("the requests do not end: ", err)
	}
}

// each what it should.
func (l *lrsSite) demands(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		for ctx.Err() == nil {
			all.Go(func() { l.burstUntil(ctx) })
			pause(ctx, time.Second)
		}
	})
	s := l.isobar.on(t)
	good := map[string]bool{}
	await(t, "what Isobar takes the requests for", func() error {
		var errs []error
		for _, c := range countCases {
			if good[c.name] {
				continue
			}
			err := l.isobarCounts(s, &c)
			good[c.name] = err == nil
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}

// burstUntil is burst that ends with the test.
func (l *lrsSite) burstUntil(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for _, c := range countCases {
		for i := range c.number() {
			all.Go(func() {
				select {
				case id := <-l.ids:
					c.send(ctx, l, c.path(i, id), i)
				case <-ctx.Done():
				}
			})
		}
	}
	all.Wait()
}

// isobarCounts compares what Isobar says of a service in which the requests of
// the case come once a second. Windows hold more or less than one second's.
func (l *lrsSite) isobarCounts(s *isobar, c *countCase) error {
	var e plan.Explanation
	if err := s.get("/v1/explain?service="+c.name+"&from=us/a", &e); err != nil {
		return err
	}
	is := isobarCount{demand: e.Demand.Raw, landed: e.Localities[0].Measured, errors: e.Demand.Errors, dropped: e.Demand.Dropped}
	want := c.isobarWant()
	near := func(got, want float64) bool { return math.Abs(got-want) <= 0.2*want+0.5 }
	upTo := max(want.errors, float64(c.errorsUpTo))
	if !near(is.demand, want.demand) || !near(is.landed, want.landed) || !near(is.dropped, want.dropped) ||
		is.errors > upTo+0.2*upTo+0.5 || is.errors < want.errors-0.2*want.errors-0.5 {
		return fmt.Errorf("%s: %.1f, want about %.1f", c.name, is, want)
	}
	return nil
}

// startLRSSite starts Isobar with a service for each case, and an Envoy whose
// listeners lead to them, with a tap in between.
func startLRSSite(t *testing.T, version string) *lrsSite {
	t.Helper()
	web, code := startWebBackend(t, "web"), startCodeBackend(t)
	backends := map[string]string{"": web.address, "code": code, "closed": testhelp.Refused(t), "full": startFullListener(t)}
	var services strings.Builder
	services.WriteString("services:\n")
	for _, c := range countCases {
		fmt.Fprintf(&services, "- {name: %s, localities: [{locality: us/a, endpoints: [%q]}]}\n", c.name, backends[c.backend])
	}
	l := &lrsSite{isobar: startIsobar(t, services.String()), ids: make(chan int)}
	l.tap = startTap(t, l.isobar.xds)
	l.tap.setEdit(spoilForCounts)
	go func() { // ends with the test
		for id := 0; ; id++ {
			select {
			case l.ids <- id:
			case <-t.Context().Done():
				return
			}
		}
	}()
	p := startEnvoy(t, version, lrsBootstrap(t, l.tap.address))
	if err := p.AwaitReady(t.Context(), patience); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.http, err = p.Listener(t.Context(), "http"); err != nil {
		t.Fatal(err)
	}
	if l.tcp, err = p.Listener(t.Context(), "tcp"); err != nil {
		t.Fatal(err)
	}
	l.client.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	l.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(l.client.CloseIdleConnections)
	if l.calls, err = grpc.NewClient(l.http, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.calls.Close() })
	l.awaitReports(t, 2) // the first is sent before Isobar has answered
	return l
}

// spoilForCounts makes assignments that Isobar does not: all requests dropped,
// no endpoints, and unhealthy ones.
func spoilForCounts(a *endpointv3.ClusterLoadAssignment) {
	switch a.GetClusterName() {
	case "drop_overload":
		a.Policy = &endpointv3.ClusterLoadAssignment_Policy{DropOverloads: []*endpointv3.ClusterLoadAssignment_Policy_DropOverload{{
			Category: "drop_overload", DropPercentage: &typev3.FractionalPercent{Numerator: 100},
		}}}
	case "no_hosts":
		a.Endpoints = nil
	case "none_healthy":
		for _, e := range a.GetEndpoints()[0].GetLbEndpoints() {
			e.HealthStatus = corev3.HealthStatus_UNHEALTHY
		}
	}
}

// lrsBootstrap is what `isobar bootstrap envoy` prints, with a listener for
// HTTP and gRPC, one for TCP, and a cluster for each case.
func lrsBootstrap(t *testing.T, xds string) string {
	t.Helper()
	var routes, clusters strings.Builder
	for _, c := range countCases {
		fmt.Fprintf(&routes, "                - {match: {prefix: /%s/}, route: {%s}}\n", c.name, join("cluster: "+c.name, c.route))
		fields := []string{"name: " + c.name, "type: EDS", "eds_cluster_config: {eds_config: {resource_api_version: V3, initial_fetch_timeout: 0s, ads: {}}}"}
		for field, usual := range map[string]string{
			"connect_timeout":  "connect_timeout: 5s",
			"common_lb_config": "common_lb_config: {locality_weighted_lb_config: {}}",
			"circuit_breakers": "circuit_breakers: {thresholds: [{max_connections: 10000, max_pending_requests: 10000, max_requests: 10000, max_retries: 10000}]}",
		} {
			if !strings.HasPrefix(c.cluster, field) {
				fields = append(fields, usual)
			}
		}
		if c.proto == "grpc" {
			fields = append(fields, http2Options)
		}
		fmt.Fprintf(&clusters, "    - {%s}\n", join(append(fields, c.cluster)...))
	}
	printed := envoyBootstrap(t, "--server", xds, "--node-id", "counter", "--cluster", "web", "--locality", "us/a")
	return withListeners(t, printed, fmt.Sprintf(`    - name: http
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
      - filters:
        - name: envoy.filters.network.http_connection_manager
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
            stat_prefix: http
            http_filters: [{name: router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
            route_config:
              validate_clusters: false
              virtual_hosts:
              - name: all
                domains: ["*"]
                routes:
%s    - name: tcp
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
      - filters:
        - name: envoy.filters.network.tcp_proxy
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tcp, cluster: tcp}
`, &routes), clusters.String()) + "layered_runtime: {layers: [{name: static, static_layer: {upstream.maintenance_mode.maintenance: 100}}]}\n"
}

// http2Options has a cluster speak HTTP/2.
const http2Options = `typed_extension_protocol_options: {envoy.extensions.upstreams.http.v3.HttpProtocolOptions: ` +
	`{"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions, explicit_http_config: {http2_protocol_options: {}}}}`

func join(fields ...string) string {
	var out []string
	for _, f := range fields {
		if f != "" {
			out = append(out, f)
		}
	}
	return strings.Join(out, ", ")
}

// withListeners adds listeners and clusters, as YAML, to a printed bootstrap.
func withListeners(t *testing.T, printed, listeners, clusters string) string {
	t.Helper()
	out := printed
	for place, text := range map[string]string{"  listeners: []\n": "  listeners:\n" + listeners, "\n  clusters:\n": "\n  clusters:\n" + clusters} {
		if strings.Count(out, place) != 1 {
			t.Fatalf("the bootstrap has not one %q:\n%s", place, printed)
		}
		out = strings.Replace(out, place, text, 1)
	}
	return out
}
