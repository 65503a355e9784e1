// Package server puts the parts together. Tests, the demo and the command line
// all start the same thing: New, then Run until the context ends.
package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/member"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/store"
)

// Listeners are where the server listens. The server closes them.
type Listeners = listen.Listeners

// Options of a Server beside its configuration. The zero value is useful.
type Options struct {
	// File is the path of the configuration file, to be watched, and Data what
	// was read from it. Empty: the configuration does not change.
	File string
	Data []byte
	// Store keeps the state; nil = files in the configuration's StateDir. The
	// server closes only a store that it opened.
	Store store.Store
	Log   *slog.Logger
	// Version is that of the program, for recordings.
	Version string
	// DialDNS opens the connection to a DNS server; nil = the system's.
	DialDNS func(ctx context.Context, network, address string) (net.Conn, error)
	// NoConsole leaves out the web console, also where the configuration has it.
	NoConsole bool
	// ProviderGrace is how long a provider of a new leader of a group has to have listed
	// everything before what it does not list counts as gone; 0 = 5 minutes.
	ProviderGrace time.Duration
	// BalanceAfter is for how long the same replicas have to be live before this one closes
	// connections that others should have; 0 = a minute.
	BalanceAfter time.Duration
	// DialSource opens the connection to the other control plane that the
	// configuration names; nil = the system's dialer.
	DialSource func(ctx context.Context, address string) (net.Conn, error)
	// CreateTrace creates files of the rolling trace; nil = in the file system.
	CreateTrace func(path string) (io.WriteCloser, error)
	// MessageMemory bounds the memory of messages that are not whole or that no
	// handler has read, in bytes, over all connections; default 512 MiB.
	MessageMemory int64
	// Pressure is told when clients make the server use half of a budget for what they
	// send, again every 100 ms, and once when less than a quarter is used; nil = nobody is.
	Pressure func(on bool)
	// Published is called when streams were sent a new plan. It returns at once; nil = nobody is told.
	Published func()
	// Boot tells since when the machine is up; nil = the system is asked.
	Boot func() control.Boot
	// ReplicaTiming shortens the protocol between replicas for tests; the zero value
	// is what the documentation says.
	ReplicaTiming replica.Timing
}

// Server is the management server. Each part decides one thing; this type builds them, and
// runs them.
type Server struct {
	opts      Options
	settings  *reload.Settings
	log       *slog.Logger
	listeners Listeners
	metrics   *prometheus.Registry
	trigger   filewatch.Trigger

	files    *store.Files // nil when the store was given
	kept     *loopState   // for what this package keeps itself
	gate     *listen.Gate
	identity *identity.Metrics
	registry *discovery.Registry

	providers     *providers.Set
	configuration *reload.Configuration
	services      *services
	clients       *operators.Clients
	operations    operators.Operations
	offers        *member.Offers   // of the configuration file, in a group
	operated      *member.Operated // what operators write, in a group
	member        *member.Member   // nil = this server is alone
	unserved      chan struct{}    // closed when the server, which ends, has no clients any more
	loop          *control.Loop
	grpc          *listen.Servers
	admin         *admin.Server
	recordings    *operators.Recordings
	sampler       *operators.Sampler
	archiver      *operators.Archiver
}

// Run serves until ctx ends, then takes back what clients drop, saves, sends the
// clients away over the configured time, and returns nil. Operators are
// answered until the last client is gone. Run it once.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeStore()
	g, ctx := errgroup.WithContext(ctx)
	unserved, cancel := context.WithCancel(context.WithoutCancel(ctx))
	gone := sync.OnceFunc(func() {
		cancel()
		close(s.unserved)
	})
	defer gone()
	during := func(run func(context.Context)) { // until ctx ends
		g.Go(func() error {
			run(ctx)
			return nil
		})
	}
	if s.member != nil {
		g.Go(func() error { return s.member.Run(ctx) })
	}
	g.Go(func() error {
		defer s.archiver.End()
		return s.loop.Run(ctx)
	})
	g.Go(func() error {
		s.archiver.Run()
		return nil
	})
	during(s.loop.Survey)
	if s.admin != nil {
		during(func(ctx context.Context) { s.sampler.Run(ctx, s.loop.Current) })
	}
	during(s.recordings.Roll)
	during(s.pressure().follow)
	s.providers.Follow(ctx, g.Go)
	g.Go(func() error {
		defer gone()
		s.providers.Wait(ctx)
		return s.grpc.Serve(ctx)
	})
	if s.listeners.REST != nil {
		g.Go(func() error {
			s.providers.Wait(ctx)
			return s.gate.ServePolls(unserved, s.listeners.REST, s.services.polls()) // those that poll learn what they drop no longer, too
		})
	}
	during(func(ctx context.Context) { s.services.serveHealth(ctx, s.grpc.Names()) })
	if s.admin != nil {
		g.Go(func() error { return s.admin.Serve(unserved, s.gate.AdminListener(s.listeners.Admin)) })
	}
	s.gate.Follow(ctx, g.Go)
	s.configuration.Follow(ctx, g.Go)
	return g.Wait()
}

// Reread looks at once whether the configuration, certificates or tokens have
// changed on disk. It is noticed anyway, on most file systems; on others within
// half a minute.
func (s *Server) Reread() { s.trigger.Fire() }

func (s *Server) closeStore() {
	if s.files == nil {
		return
	}
	if err := s.files.Close(); err != nil {
		s.log.Warn("could not close the state directory", "error", err)
	}
}

// Plan returns the plan in force; nil before the first.
func (s *Server) Plan() *plan.Plan { return s.loop.Current() }

// Health tells what checkers found, of one service or, for an empty name, of
// all that have health checks.
func (s *Server) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	return s.operations.Health(ctx, service)
}

// Mark notes that something happens now, to be seen in the charts of the last day.
func (s *Server) Mark(text string) {
	now := time.Now()
	s.sampler.Note(now, admin.SampleMark{At: now.UTC(), Text: text})
}

// XDSAddress is where clients connect.
func (s *Server) XDSAddress() string { return s.listeners.XDS.Addr().String() }

// AdminAddress is where operators connect; empty without an admin interface.
func (s *Server) AdminAddress() string {
	if s.listeners.Admin == nil {
		return ""
	}
	return s.listeners.Admin.Addr().String()
}
