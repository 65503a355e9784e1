package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	loadstatsv3 "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/identity/identitytest"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// quick is the protocol between replicas, ten times as fast as in production.
var quick = replica.Timing{
	Heartbeat: 100 * time.Millisecond, Deadline: 700 * time.Millisecond, Renew: 200 * time.Millisecond, Campaign: 200 * time.Millisecond,
	EngineTimeout: 300 * time.Millisecond, Gather: 100 * time.Millisecond, Rest: 3 * time.Second,
}

// member is a replica of a group within this process.
type member struct {
	t      *testing.T
	server *server.Server
	end    func()
}

// startMember starts a server with the configuration; it stops with the test.
func startMember(t *testing.T, yaml string) *member {
	t.Helper()
	return startMemberWith(t, yaml, server.Options{ReplicaTiming: quick})
}

func startMemberWith(t *testing.T, yaml string, o server.Options) *member {
	t.Helper()
	cfg, _, err := config.Decode("isobar.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.Open(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	m := &member{t: t, server: s}
	stopped := false
	m.end = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(m.end)
	return m
}

func (m *member) read(path string, into any) {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.server.AdminAddress()+path, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) group() (g admin.ReplicaGroup) {
	m.t.Helper()
	m.read("/v1/replicas", &g)
	return g
}

func (m *member) status() (s admin.Status) {
	m.t.Helper()
	m.read("/v1/status", &s)
	return s
}

// replicaConfig is the configuration of a replica; peers are NAME=ADDRESS.
func replicaConfig(t *testing.T, name, listen, election, services string, peers ...string) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "xds: {listen: \"127.0.0.1:0\"}\nadmin: {listen: \"127.0.0.1:0\", writable: true}\ntick: 1s\nreport_interval: 1s\nstop_spread: 0s\nstate_dir: %q\n",
		filepath.Join(t.TempDir(), name))
	fmt.Fprintf(&b, "replicas:\n  group: test\n  name: %s\n  listen: %q\n  election: %s\n  peers:\n", name, listen, election)
	for _, p := range peers {
		peer, address, _ := strings.Cut(p, "=")
		fmt.Fprintf(&b, "  - {name: %s, address: %q}\n", peer, address)
	}
	b.WriteString("services:\n" + services)
	return b.String()
}

const checkoutAndCart = "- {name: checkout, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}]}\n" +
	"- {name: cart, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}]}\n"

// TestGroupNeedsAttention asserts that a replica says what it can't reach, and that
// nobody decides.
func TestGroupNeedsAttention(t *testing.T) {
	listen := testhelp.FreePort(t)
	m := startMember(t, replicaConfig(t, "a", listen, `{etcd: {endpoints: ["http://127.0.0.1:1"]}}`, checkoutAndCart, "a="+listen, "b=127.0.0.1:1"))
	testhelp.Eventually(t, "the replica knows that it reaches nobody", func() bool {
		g := m.group()
		return !g.Engine && len(g.Replicas) == 2 && strings.Contains(g.Replicas[1].Failure, "refused")
	})
	s := m.status()
	attends(t, s, admin.GroupLeaderless)
	attends(t, s, admin.ElectionLost)
	if a := attends(t, s, admin.ReplicaLost); !strings.Contains(a.Text, "replica b") {
		t.Errorf("told: %+v", a)
	}
	if m.server.Plan() != nil {
		t.Error("a replica made a plan without leading")
	}
}

// fullEtcd answers as an etcd does whose database is nearly full. What a real one answers
// is tested in test/replicas.
type fullEtcd struct {
	etcdserverpb.UnimplementedMaintenanceServer
}

func (fullEtcd) Status(context.Context, *etcdserverpb.StatusRequest) (*etcdserverpb.StatusResponse, error) {
	return &etcdserverpb.StatusResponse{DbSize: 1800 << 20, DbSizeQuota: 2048 << 20}, nil
}

// TestElectionEngineIsFull asserts that operators are told of an etcd that is about to
// refuse writes.
func TestElectionEngineIsFull(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	etcdserverpb.RegisterMaintenanceServer(g, fullEtcd{})
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	listen := testhelp.FreePort(t)
	m := startMember(t, replicaConfig(t, "a", listen, fmt.Sprintf(`{etcd: {endpoints: ["http://%s"]}}`, l.Addr()), checkoutAndCart, "a="+listen))
	testhelp.Eventually(t, "it asks etcd", func() bool { return len(m.group().EngineWarnings) > 0 })
	if a := attends(t, m.status(), admin.ElectionFull); !strings.Contains(a.Text, "1800 of 2048 MiB") {
		t.Errorf("told: %+v", a)
	}
}

// TestOldFileOfALeader asserts that the configuration of the group stays in force where
// a new leader has an older file, and that both replicas say that they differ.
func TestOldFileOfALeader(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	a := startMember(t, replicaConfig(t, "a", listen[0], election, checkoutAndCart, peers...))
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	old := checkoutAndCart[:strings.Index(checkoutAndCart, "\n")+1] // without cart
	b := startMember(t, replicaConfig(t, "b", listen[1], election, old, peers...))
	testhelp.Eventually(t, "b follows and both differ", func() bool {
		g := b.group()
		return g.Leader == "a" && b.server.Plan() != nil && g.Removes && !g.Agreed && a.group().Replicas[1].ConfigDigest != ""
	})
	attends(t, b.status(), admin.ReplicasDiffer)
	attends(t, a.status(), admin.ReplicasDiffer)
	last := a.server.Plan().Version
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan().Version > last+900_000 })
	if p := b.server.Plan(); p.Spec("cart") == nil || p.Spec("checkout") == nil {
		t.Errorf("the older file of the new leader removed services: %v", p.ServiceNames())
	}
}

// TestAcceptedConfiguration asserts that an operator puts the leader's file in force without
// a majority, from any replica; that the next leader goes on with it although its own file
// differs; and that a digest which the leader does not have is refused.
func TestAcceptedConfiguration(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	files := make([]string, 2)
	begin := func(n int) *member {
		text := replicaConfig(t, string(rune('a'+n)), listen[n], election, checkoutAndCart, peers...)
		files[n] = filepath.Join(t.TempDir(), "isobar.yaml")
		if err := os.WriteFile(files[n], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return startMemberWith(t, text, server.Options{ReplicaTiming: quick, File: files[n], Data: []byte(text)})
	}
	rewrite := func(n int, services string) {
		data, err := os.ReadFile(files[n])
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := strings.Cut(string(data), "services:\n")
		if err := os.WriteFile(files[n], []byte(before+"services:\n"+services), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a := begin(0)
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b := begin(1)
	testhelp.Eventually(t, "b follows", func() bool { g := b.group(); return g.Removes && g.Agreed })
	first := a.group().InForce
	added := func(name string) string {
		return fmt.Sprintf("- {name: %s, localities: [{locality: us/a, endpoints: [\"127.0.0.1:9\"]}]}\n", name)
	}
	has := func(m *member, service string) bool { p := m.server.Plan(); return p != nil && p.Spec(service) != nil }

	rewrite(0, checkoutAndCart+added("search"))
	digest := ""
	testhelp.Eventually(t, "another digest of a's file", func() bool {
		g := b.group()
		digest = g.Replicas[0].ConfigDigest
		return digest != "" && digest != first && g.InForce == first
	})
	if has(a, "search") {
		t.Error("the change is in force without a majority")
	}
	accept := func(m *member, digest string) (int, string) {
		return m.send("POST", "/v1/replicas/accept-config", fmt.Sprintf(`{"digest": %q, "reason": "a test"}`, digest), "")
	}
	if status, answer := accept(b, first); status != http.StatusConflict || !strings.Contains(answer, "have b lead") {
		t.Errorf("the digest of a follower's file: %d %s", status, answer)
	}
	if status, answer := accept(a, "x"); status != http.StatusConflict || !strings.Contains(answer, "no live replica") {
		t.Errorf("a digest that nobody has: %d %s", status, answer)
	}
	if status, answer := accept(b, digest); status != http.StatusOK || !strings.Contains(answer, `"leader":"a"`) && !strings.Contains(answer, `"leader": "a"`) {
		t.Fatalf("accepting at a follower: %d %s", status, answer)
	}
	testhelp.Eventually(t, "the accepted change on both", func() bool { return has(a, "search") && has(b, "search") && b.group().InForce == digest })

	rewrite(0, checkoutAndCart+added("search")+added("later"))
	testhelp.Eventually(t, "a third digest", func() bool { return a.group().Replicas[0].ConfigDigest != digest })
	last := a.server.Plan().Version
	testhelp.Eventually(t, "two more plans", func() bool { return a.server.Plan().Version > last+1 })
	if has(a, "later") {
		t.Error("a later change took effect without a majority")
	}
	a.end()
	testhelp.Eventually(t, "b leads", func() bool { return b.group().Leader == "b" && b.server.Plan().Version > last+900_000 })
	if !has(b, "search") || b.group().InForce != digest {
		t.Errorf("the next leader, with a file of before, has %v of configuration %s", b.server.Plan().ServiceNames(), b.group().InForce)
	}
}

// withTLS has the replicas of a configuration show certificates of the authority.
func withTLS(t *testing.T, yaml string, ca *identitytest.CA, uri string) string {
	t.Helper()
	f := ca.Write(t.TempDir(), identitytest.Leaf{URIs: []string{uri}})
	return strings.Replace(yaml, "  election:", fmt.Sprintf("  tls: {cert: %q, key: %q, client_ca: %q}\n  election:", f.Cert, f.Key, f.ClientCA), 1)
}

// TestReplicasShowCertificates asserts that replicas with certificates of one authority
// that name group and replica form a group, and that every other certificate, and
// plaintext, is refused on both sides with the reason.
func TestReplicasShowCertificates(t *testing.T) {
	ca, foreign := identitytest.NewCA(t), identitytest.NewCA(t)
	const a, b = "spiffe://example.org/isobar/test/a", "spiffe://example.org/isobar/test/b"
	for _, c := range []struct {
		name    string
		other   func(yaml string) string
		refused string // in what a says of b; "" = b takes part
	}{
		{"both name themselves", func(yaml string) string { return withTLS(t, yaml, ca, b) }, ""},
		{"another replica's name", func(yaml string) string { return withTLS(t, yaml, ca, a) }, "does not name the replica"},
		{"another group", func(yaml string) string { return withTLS(t, yaml, ca, "spiffe://example.org/isobar/staging/b") }, "does not name the replica"},
		{"another authority", func(yaml string) string { return withTLS(t, yaml, foreign, b) }, "certificate"},
		{"plaintext", func(yaml string) string { return yaml }, "tls"},
	} {
		t.Run(c.name, func(t *testing.T) {
			listen := []string{testhelp.FreePort(t), testhelp.FreePort(t)}
			peers := []string{"a=" + listen[0], "b=" + listen[1]}
			election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
			first := startMember(t, withTLS(t, replicaConfig(t, "a", listen[0], election, checkoutAndCart, peers...), ca, a))
			testhelp.Eventually(t, "a leads", func() bool { return first.group().Leader == "a" && first.server.Plan() != nil })
			other := startMember(t, c.other(replicaConfig(t, "b", listen[1], election, checkoutAndCart, peers...)))
			if c.refused == "" {
				testhelp.Eventually(t, "b follows", func() bool { return other.group().Leader == "a" && other.group().Removes })
				other.writes("POST", "/v1/pause", `{"service": "checkout", "reason": "over TLS"}`)
				agree(t, "a write that b passed on", []string{"over TLS"}, first, other)
				return
			}
			testhelp.Eventually(t, "a says why it refuses b", func() bool {
				g := first.group()
				return strings.Contains(g.Replicas[1].Failure, c.refused) && !g.Replicas[1].Live
			})
			if g := other.group(); g.Removes || other.server.Plan() != nil {
				t.Errorf("b follows a group that refuses it: %+v", g)
			}
		})
	}
}

// A replica shows its peers the certificate that its files hold now, and tells when it
// ends: one that is renewed every few weeks needs no restart.
func TestReplicaRenewsItsCertificate(t *testing.T) {
	ca := identitytest.NewCA(t)
	dir := t.TempDir()
	write := func(until time.Time) identity.Files {
		return ca.Write(dir, identitytest.Leaf{URIs: []string{"spiffe://example.org/isobar/test/a"}, NotAfter: until})
	}
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	f := write(soon)
	listen := testhelp.FreePort(t)
	yaml := replicaConfig(t, "a", listen, fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election")), checkoutAndCart, "a="+listen)
	m := startMember(t, strings.Replace(yaml, "  election:", fmt.Sprintf("  tls: {cert: %q, key: %q, client_ca: %q}\n  election:", f.Cert, f.Key, f.ClientCA), 1))
	shown := func() time.Time {
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
		conn, err := dialer.DialContext(t.Context(), "tcp", listen)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter
	}
	told := func() time.Time {
		for _, c := range m.status().Certificates {
			if c.Name == "replicas" {
				return c.NotAfter
			}
		}
		return time.Time{}
	}
	if !shown().Equal(soon) || !told().Equal(soon) {
		t.Fatalf("shows a certificate until %s and tells of %s, want %s", shown(), told(), soon)
	}
	late := soon.Add(10 * time.Hour)
	write(late)
	testhelp.Eventually(t, "the new certificate", func() bool { return shown().Equal(late) && told().Equal(late) })
}

// unhurried is the protocol between replicas for a test whose leader has to stay on a
// busy machine.
var unhurried = replica.Timing{
	Heartbeat: 400 * time.Millisecond, Deadline: 4 * time.Second, Renew: 500 * time.Millisecond, Campaign: 300 * time.Millisecond,
	EngineTimeout: time.Second, Gather: 300 * time.Millisecond, Rest: 5 * time.Second,
}

// loadStream opens a load report stream of a client in us/a to a replica, and returns it once
// it is accepted.
func (m *member) loadStream(node string) loadstatsv3.LoadReportingService_StreamLoadStatsClient {
	m.t.Helper()
	s, err := loadstatsv3.NewLoadReportingServiceClient(m.dial()).StreamLoadStats(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := s.Send(&loadstatsv3.LoadStatsRequest{Node: nodeIn(node, "us/a")}); err != nil {
		m.t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		m.t.Fatal(err)
	}
	return s
}

// report opens a load report stream to a replica and reports once.
func (m *member) report(node string, issued uint64) {
	m.t.Helper()
	s := m.loadStream(node)
	stats := &endpointv3.ClusterStats{
		ClusterName: "checkout", LoadReportInterval: durationpb.New(10 * time.Second),
		UpstreamLocalityStats: []*endpointv3.UpstreamLocalityStats{{
			Locality: protoLocality("us/a"), TotalIssuedRequests: issued, TotalSuccessfulRequests: issued,
		}},
	}
	if err := s.Send(&loadstatsv3.LoadStatsRequest{ClusterStats: []*endpointv3.ClusterStats{stats}}); err != nil {
		m.t.Fatal(err)
	}
}

// decides returns the version of the plan and the demand that it was decided by,
// requests/s, as far as clients reported it; 0 where nothing was decided.
func (m *member) decides() (version uint64, reported float64) {
	p := m.server.Plan()
	if p == nil {
		return 0, 0
	}
	s, ok := p.Service("checkout")
	if !ok || s.Hold != "" || s.Load == nil {
		return 0, 0
	}
	for i := range s.Load.Sources {
		reported += s.Load.Sources[i].Raw
	}
	return p.Version, reported
}

// TestNewLeaderDecidesAtOnce asserts that a new leader decides at its first tick by what
// clients of all replicas reported before, and does not wait until they report again.
func TestNewLeaderDecidesAtOnce(t *testing.T) {
	listen := []string{testhelp.FreePort(t), testhelp.FreePort(t), testhelp.FreePort(t)}
	peers := []string{"a=" + listen[0], "b=" + listen[1], "c=" + listen[2]}
	election := fmt.Sprintf("{file: %q}", filepath.Join(t.TempDir(), "election"))
	begin := func(n int) *member {
		text := replicaConfig(t, string(rune('a'+n)), listen[n], election, checkoutAndCart, peers...)
		text = strings.Replace(text, "report_interval: 1s", "report_interval: 10s", 1)
		return startMemberWith(t, text, server.Options{ReplicaTiming: unhurried})
	}
	a := begin(0)
	testhelp.Eventually(t, "a leads", func() bool { return a.group().Leader == "a" && a.server.Plan() != nil })
	b, c := begin(1), begin(2)
	testhelp.Eventually(t, "b and c follow", func() bool { return b.group().Removes && c.group().Removes })
	b.report("client-b", 1000)
	c.report("client-c", 2000)
	testhelp.Eventually(t, "a decides by the reports", func() bool {
		_, reported := a.decides()
		return reported > 250
	})
	a.end()
	leader := b
	testhelp.Eventually(t, "another one leads", func() bool {
		if c.group().Role == "leader" {
			leader = c
		}
		return leader.group().Role == "leader"
	})
	began := time.Now()
	testhelp.Eventually(t, "its first decision", func() bool {
		version, reported := leader.decides()
		return version > 0 && reported > 250
	})
	took := time.Since(began)
	if took > 5*time.Second { // clients report every 10 s
		t.Errorf("its first decision took %v", took)
	}
	t.Logf("the first decision of the new leader took %v", took)
}
