package server_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const interval = 5 * time.Second

func loc(s string) isobar.Locality { return isobar.MustLocality(s) }

// world is a real server in a bubble of virtual time, with fake clients over
// in-memory connections.
type world struct {
	t      *testing.T
	ctx    context.Context
	server *server.Server
	conn   *grpc.ClientConn
	api    *http.Client
	agents []*fleet.Agent // in the order in which they were started
}

// configuration is that of the fleet of [testhelp.FourZones].
func configuration(t *testing.T) *config.Config {
	t.Helper()
	zones := testhelp.FourZones(t)
	c := config.Default()
	c.StopSpread = 0
	c.Tick, c.ReportInterval, c.Network, c.Services = interval, interval, zones.Network, zones.Services
	declaredCapacities(&c)
	return &c
}

// declaredCapacities lets plans go by declared capacities.
func declaredCapacities(c *config.Config) {
	for i := range c.Services {
		c.Services[i].CapacityTrust = cmp.Or(c.Services[i].CapacityTrust, isobar.TrustDeclared)
	}
}

// inWorld runs a test in virtual time against a server of its own.
func inWorld(t *testing.T, cfg *config.Config, test func(w *world)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		runWorld(t, cfg, kept, test)
	})
}

// runWorld starts a server on a store, runs the test and stops everything.
func runWorld(t *testing.T, cfg *config.Config, kept store.Store, test func(w *world)) {
	t.Helper()
	runLogged(t, cfg, kept, slog.New(slog.DiscardHandler), test)
}

// runLogged is runWorld with a log.
func runLogged(t *testing.T, cfg *config.Config, kept store.Store, log *slog.Logger, test func(w *world)) {
	t.Helper()
	runWith(t, cfg, server.Options{Store: kept, Log: log}, test)
}

// runWith is runWorld with all options. Plans go by declared capacities, unless a test
// says otherwise: requests never queue where fake clients send them, at whatever load.
func runWith(t *testing.T, cfg *config.Config, opts server.Options, test func(w *world)) {
	t.Helper()
	declaredCapacities(cfg)
	pipe, apiPipe := bufconn.Listen(1<<20), bufconn.Listen(1<<16)
	s, err := server.New(cfg, server.Listeners{XDS: pipe, Admin: apiPipe}, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn := testhelp.Dial(t, pipe)
	// A connection for each request: bufconn may report a read deadline that was
	// taken back, as net/http does between two requests of a connection.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return apiPipe.DialContext(ctx) }}
	defer func() { // also when the test gives up
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	test(&world{t: t, ctx: ctx, server: s, conn: conn, api: &http.Client{Transport: transport}})
}

// start runs agents until the test's world ends. Their reports are spread
// over the interval, as those of a grown fleet are.
func (w *world) start(agents ...fleet.AgentOptions) {
	w.t.Helper()
	for i, o := range agents {
		o.Conn = w.conn
		if o.ID == "" {
			o.ID = fmt.Sprintf("node-%d", i)
		}
		if o.Services == nil {
			o.Services = []string{"checkout"}
		}
		a, err := fleet.NewAgent(o)
		if err != nil {
			w.t.Fatal(err)
		}
		w.agents = append(w.agents, a)
		go a.Run(w.ctx)
		time.Sleep(interval / time.Duration(len(agents))) //nolint:forbidigo // virtual time
	}
}

// tick lets virtual time go on to just after the next decision.
func (w *world) tick() *plan.Plan {
	w.t.Helper()
	synctest.Wait() // a decision of this very moment is not the next one
	before := w.server.Plan().Version
	for range 100 {
		time.Sleep(interval / 20) //nolint:forbidigo // virtual time
		synctest.Wait()
		if p := w.server.Plan(); p.Version > before {
			return p
		}
	}
	w.t.Fatal("no plan in five ticks")
	return nil
}

// clients makes n agents of a source that share its demand.
func clients(source string, n int, demand func(time.Time) float64, change ...func(*fleet.AgentOptions)) []fleet.AgentOptions {
	out := make([]fleet.AgentOptions, n)
	for i := range out {
		out[i] = fleet.AgentOptions{
			ID: fmt.Sprintf("%s-%d", source, i), Cluster: "web", Locality: loc(source), Kind: fleet.KindEnvoy,
			Demand: func(_ string, now time.Time) float64 { return demand(now) / float64(n) },
		}
		for _, c := range change {
			c(&out[i])
		}
	}
	return out
}

func constant(rate float64) func(time.Time) float64 { return func(time.Time) float64 { return rate } }

// TestRestartServesTheSameWeights: a new process on the same state serves what
// the old one served, from its first plan on, with versions that go on, and
// holds it until it has heard of the fleet.
func TestRestartServesTheSameWeights(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		agents := append(everywhere(300), clients("us/c", 5, constant(900))...)
		before := settled(t, cfg, kept, agents)
		runWorld(t, cfg, kept, func(w *world) {
			synctest.Wait()
			first := w.server.Plan()
			if first == nil || first.Version <= before.Version {
				t.Fatalf("the first plan is %v after version %d", first, before.Version)
			}
			sameAssignments(t, before, first)
			w.start(agents...) // takes an interval
			for range 20 {
				p := w.tick()
				noViolations(t, p)
				if moved := apart(before, p); moved > 1 {
					t.Errorf("shares moved by %.1f points after the restart, at unchanged demand", moved)
				}
			}
		})
	})
}

// TestRestartHoldsWhileClientsAreMissing: with a fifth of the fleet back,
// weights stay; after three intervals what is seen counts.
func TestRestartHoldsWhileClientsAreMissing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		kept := store.NewMemory()
		defer func() { _ = kept.Close() }()
		cfg := configuration(t)
		agents := append(everywhere(300), clients("us/c", 5, constant(900))...)
		before := settled(t, cfg, kept, agents)
		runWorld(t, cfg, kept, func(w *world) {
			w.start(agents[:5]...)
			p := w.tick()
			s, _ := p.Service("checkout")
			if s.Hold == "" || s.Coverage > 0.5 {
				t.Errorf("coverage %.2f, hold %q; want a hold", s.Coverage, s.Hold)
			}
			if moved := apart(before, p); moved > 0 {
				t.Errorf("shares moved by %.1f points on a fifth of the reports", moved)
			}
			time.Sleep(6 * interval) //nolint:forbidigo // virtual time
			if s, _ := w.tick().Service("checkout"); s.Hold != "" {
				t.Errorf("still holding after six intervals: %s", s.Hold)
			}
		})
	})
}

// settled runs a server with a whole fleet until shares stand, and returns its last
// plan.
func settled(t *testing.T, cfg *config.Config, kept store.Store, agents []fleet.AgentOptions) (last *plan.Plan) {
	t.Helper()
	runWorld(t, cfg, kept, func(w *world) {
		w.start(agents...)
		for range 20 {
			last = w.tick()
		}
	})
	return last
}

func sameAssignments(t *testing.T, a, b *plan.Plan) {
	t.Helper()
	for _, z := range []string{"eu/a", "eu/b", "us/a", "us/b", "us/c"} {
		x, err := json.Marshal(a.Assignment("checkout", loc(z)))
		if err != nil {
			t.Fatal(err)
		}
		y, err := json.Marshal(b.Assignment("checkout", loc(z)))
		if err != nil {
			t.Fatal(err)
		}
		if string(x) != string(y) {
			t.Errorf("%s:\nbefore %s\nafter  %s", z, x, y)
		}
	}
}

// TestStateThatCannotBeOpened: whatever is wrong with the state directory is
// said, and the listeners stay with the caller.
func TestStateThatCannotBeOpened(t *testing.T) {
	used := t.TempDir()
	held, err := store.Open(used, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := t.TempDir()
	for _, name := range []string{"plan.state", "plan.state.prev", "sources.state", "sources.state.prev"} {
		if err := os.WriteFile(filepath.Join(damaged, name), []byte("not what it should be"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newer, newerHistory := t.TempDir(), t.TempDir()
	future, err := os.ReadFile(filepath.Join("testdata", "newer.state"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(newer, "health.state"), filepath.Join(newerHistory, "history-03.state")} {
		if err := os.WriteFile(path, future, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, dir, says string
		is              error
	}{
		{"in use", used, "in use by another process", store.ErrLocked},
		{"a file", file, "directory", nil},
		{"newer", newer, "start that version again, or move the file away", store.ErrNewerFormat},
		{"a newer history", newerHistory, "start that version again, or move the file away", store.ErrNewerFormat},
		{"damaged", damaged, "corrupt", store.ErrCorrupt},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg := configuration(t)
			cfg.StateDir = tt.dir
			_, err := server.New(cfg, server.Listeners{XDS: bufconn.Listen(1)}, server.Options{})
			if err == nil || !strings.Contains(err.Error(), tt.says) || (tt.is != nil && !errors.Is(err, tt.is)) {
				t.Errorf("got %v, want an error that says %q", err, tt.says)
			}
		})
	}
}

// TestTheStateIsLockedBeforeThePorts: a second server with the same
// configuration is told of the first one; and one that finds its port taken
// gives the state back.
func TestTheStateIsLockedBeforeThePorts(t *testing.T) {
	cfg := configuration(t)
	cfg.StateDir, cfg.XDS.Listen, cfg.Admin.Listen = t.TempDir(), "127.0.0.1:0", ""
	taken, err := listen.All(t.Context(), &cfg.Fixed)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	cfg.XDS.Listen = taken.XDS.Addr().String()

	held, err := store.Open(cfg.StateDir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Open(t.Context(), cfg, server.Options{}); !errors.Is(err, store.ErrLocked) {
		t.Errorf("with state and port taken it says %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Open(t.Context(), cfg, server.Options{}); err == nil || !strings.Contains(err.Error(), "xds.listen: ") {
		t.Errorf("with the port taken it says %v", err)
	}
	again, err := store.Open(cfg.StateDir, store.Options{})
	if err != nil {
		t.Fatalf("the state was not given back: %v", err)
	}
	_ = again.Close()
}

// moved puts every time in the state into another year, as if it had been saved
// by a machine whose clock was wrong.
func moved(t *testing.T, kept store.Store, year string) (times int) {
	t.Helper()
	for _, key := range []string{"plan", "health", "sources"} {
		v, err := kept.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		times += bytes.Count(v.Data, []byte(`"2000-`))
		if _, err := kept.CompareAndSwap(t.Context(), key, v.Revision, bytes.ReplaceAll(v.Data, []byte(`"2000-`), []byte(`"`+year+`-`))); err != nil {
			t.Fatal(err)
		}
	}
	return times
}

// TestClockThatJumps: state that was saved in the far future or past, because
// the clock was wrong then or is now, is served and decided upon like any other.
func TestClockThatJumps(t *testing.T) {
	for _, year := range []string{"2090", "9999", "1970", "0001"} {
		t.Run(year, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kept := store.NewMemory()
				defer func() { _ = kept.Close() }()
				cfg := checked(t)
				var version uint64
				runWorld(t, cfg, kept, func(w *world) {
					w.checkers(&truth{}, "us/a", "us/b", "eu/a")
					w.start(clients("us/a", 4, constant(600))...)
					for range 3 {
						version = w.tick().Version
					}
				})
				if moved(t, kept, year) == 0 {
					t.Fatal("no times in the state")
				}
				log := &testhelp.Log{}
				runLogged(t, cfg, kept, slog.New(slog.NewTextHandler(log, nil)), func(w *world) {
					w.checkers(&truth{}, "us/a", "us/b", "eu/a")
					w.start(clients("us/a", 4, constant(1200))...)
					p := w.tick()
					if p.Version <= version {
						t.Errorf("version %d after %d", p.Version, version)
					}
					for range 14 { // until new clients of one address are believed
						p = w.tick()
					}
					noViolations(t, p)
					src := p.Services[0].Load.Source(loc("us/a"))
					if src == nil || src.Demand < 1000 || src.Demand > 1400 {
						t.Errorf("the new demand is not seen: %+v", src)
					}
					if healthOf(p, "10.2.0.1:80").String() != "healthy" {
						t.Errorf("checkers are not heard: %v", healthOf(p, "10.2.0.1:80"))
					}
				})
				if strings.Contains(log.String(), "level=ERROR") {
					t.Error(log.String())
				}
			})
		})
	}
}
