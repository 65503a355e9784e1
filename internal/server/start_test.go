package server_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/fleet"
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
