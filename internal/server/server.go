// Package server puts the parts together. Tests, the demo and the command line
// all start the same thing: New, then Run until the context ends.
package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	grpchealth "google.golang.org/grpc/health"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/discovery/dns"
	"github.com/isobar-xds/isobar/internal/discovery/kubernetes"
	"github.com/isobar-xds/isobar/internal/discovery/xdsclient"
	"github.com/isobar-xds/isobar/internal/filewatch"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/health"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/replica"
	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/csds"
	"github.com/isobar-xds/isobar/internal/xds/view"
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
	// ProviderSettle is how long a provider of a new leader of a group has to have listed
	// everything before what it does not list counts as gone; 0 = 5 minutes.
	ProviderSettle time.Duration
	// BalanceCalm is for how long the same replicas have to be live before this one closes
	// connections that others should have; 0 = a minute.
	BalanceCalm time.Duration
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
	// Boot tells since when the machine is up; nil = the system is asked.
	Boot func() control.Boot
	// ReplicaTiming shortens the protocol between replicas for tests; the zero value
	// is what the documentation says.
	ReplicaTiming replica.Timing
}

// Server is the management server.
type Server struct {
	fixed     config.Fixed                // as started
	current   atomic.Pointer[config.Live] // as reloaded
	opts      Options
	log       *slog.Logger
	listeners Listeners
	metrics   *prometheus.Registry

	files    *store.Files // nil when the store was given
	registry *discovery.Registry
	upstream *xdsclient.Client    // another control plane that lists endpoints, if one is configured
	names    *dns.Provider        // names that DNS resolves, if some are configured
	cluster  *kubernetes.Provider // the Kubernetes cluster, if one is configured
	xds      *xds.Server
	lrs      *lrs.Server
	hds      *hds.Server
	csds     *csds.Server
	health   *grpchealth.Server // gRPC's own service, not that of endpoints
	loop     *control.Loop
	replicas *replicas               // nil = this server is alone
	operated operated                // what operators write, in a group
	offered  atomic.Pointer[offered] // what this replica's own file configures
	tracing  *replay.Roller          // nil = no rolling trace
	grpc     *listen.Servers
	admin    *admin.Server
	gate     *listen.Gate
	identity *identity.Metrics
	recent   recentSubscriptions
	badFile  refusedFile // the configuration
	held     heldServices
	kept     *loopState // for what this package keeps itself
	trigger  filewatch.Trigger
	unplaced rpc.LogLimit // of what clients on unknown Nodes can trigger

	clientsOf subscriberList
	sampler   *sampler
	archiver  *archiver
}

// New builds a server from a valid configuration. Nothing is served before
// Run; on an error the listeners are left to the caller.
func New(cfg *config.Config, ls Listeners, opts Options) (*Server, error) {
	if ls.XDS == nil {
		return nil, errors.New("server: a listener for xDS is required")
	}
	return build(cfg, opts, func() (Listeners, error) { return ls, nil })
}

// openSources opens the state and fills the registry from it and the file.
func (s *Server) openSources() error {
	kept := s.opts.Store
	if kept == nil {
		files, err := store.Open(s.fixed.StateDir, store.Options{Logger: s.log, Registerer: s.metrics})
		if err != nil {
			return err
		}
		s.files, kept = files, files
	}
	s.opts.Store = kept
	s.kept = &loopState{store: kept, revisions: map[string]uint64{}}
	registry, err := discovery.Open(context.Background(), discovery.Options{
		Store: kept, Validate: config.CheckCalls, Logger: s.log, Registerer: s.metrics, Shared: s.shared(),
	})
	if err != nil {
		return err
	}
	s.registry = registry
	if err := s.openProviders(kept); err != nil {
		return err
	}
	s.tellOverrides()
	s.openArchive()
	return nil
}

// buildLoop builds the stream layers and the loop between them.
func (s *Server) buildLoop() error {
	s.xds = xds.New(xds.Options{
		Log: s.log, Registerer: s.metrics, MaxStreams: s.fixed.XDS.MaxStreams, NameMemory: s.fixed.XDS.Limits().NameMegabytes << 20,
		Is2017: s.is2017, Admit: s.gate.Admits(identity.RoleClient), Account: listen.AnonymousAccount, Place: s.placeClient,
		Await: s.awaitVersion(), Returns: s.refusesReturning(), HoldRemovals: s.fixed.Replicas != nil,
	})
	s.lrs = lrs.New(lrs.Options{
		ManagementCluster: config.ReservedName,
		Interval:          func() time.Duration { return s.current.Load().ReportInterval },
		Services:          s.services, EndpointGranularity: s.fixed.XDS.EndpointLoad, MaxStreams: s.fixed.XDS.MaxStreams,
		Admit: s.gate.Admits(identity.RoleClient), MayReport: s.mayReport, Place: s.placeClient, Account: listen.ReportingAccount,
		Log: s.log, Registerer: s.metrics,
	})
	s.hds = hds.New(hds.Options{
		Interval: func() time.Duration { return s.current.Load().ReportInterval },
		Admit:    s.gate.Admits(identity.RoleChecker),
		Place:    s.placeClient,
		Account:  listen.AnonymousAccount,
		Identity: listen.ProvenIdentity,

		EnvoyEndpoints: s.fixed.XDS.EnvoyEndpoints,
		Log:            s.log, Registerer: s.metrics,
	})
	if err := s.openReplicas(); err != nil {
		return err
	}
	builder := view.NewBuilder(view.Options{Registerer: s.metrics, Refused: s.refused})
	options := control.Options{
		Timing: func() control.Timing {
			c := s.current.Load()
			return control.Timing{Tick: c.Tick, Interval: c.ReportInterval, Degradation: Degradation(&c.Degradation)}
		},
		SurveyEvery: func() time.Duration { return s.current.Load().N1Interval },
		Topology:    s.registry, Checkers: checkers{s.hds}, Reports: s.lrs, Clients: s.xds, State: &loopState{store: s.opts.Store, revisions: map[string]uint64{}},
		Outdated: s.outdated,
		Views:    func(p *plan.Plan, previous *view.Set) *view.Set { return builder.Build(p, previous) },
		Changed:  s.archiver.add,
		Silent:   s.silentOf, Boot: s.opts.Boot,
		Log: s.log, Registerer: s.metrics,
	}
	s.replicas.join(&options)
	loop, err := control.New(options)
	s.loop = loop
	return err
}

// services lists what clients may report on.
func (s *Server) services() []string {
	topology, _ := s.registry.State()
	out := make([]string, len(topology.Services))
	for i := range topology.Services {
		out[i] = topology.Services[i].Name
	}
	return out
}

// refused tells of a resource that broke a rule of the wire and stayed home.
func (s *Server) refused(r view.Refusal) {
	s.log.Error("a resource was not sent; clients keep the last good one", "type", r.Type, "service", r.Service, "source", r.Source.String(), "error", r.Err)
}

func (s *Server) buildAdmin() error {
	if s.listeners.Admin == nil {
		return nil
	}
	page, err := s.console()
	if err != nil {
		return err
	}
	ops := operations{server: s, Loop: s.loop}
	a, err := admin.New(admin.Options{
		Console: page, BasePath: s.fixed.Admin.BasePath,
		Objects: s.registry, Parser: parser{s.defaults, new(sync.Mutex)}, Planner: ops, Operator: ops,
		Fleet: ops, HealthChecks: ops, Configuration: ops, Providers: ops, Recorder: s, Charts: charts{s.sampler, s.replicas},
		Process: ops, Identities: s.gate, Replicas: s.replicas.operated(),
		Archive: s.archiver.kept, Polls: s.gate.HTTP(s.hds.Handler()), Nearest: strict.Nearest,
		Writable: s.fixed.Admin.Writable, Hosts: s.fixed.Admin.Hosts,
		Token: s.gate.TokenCheck(), TokenForAll: s.fixed.Admin.TokenForAll,
		Accepting: admission.TellYielding,
		Gatherer:  s.metrics, Registerer: s.metrics, Logger: s.log,
	})
	s.admin = a
	return err
}

// Run serves until ctx ends, then takes back what clients drop, saves, sends the
// clients away over the configured time, and returns nil. Operators are
// answered until the last client is gone. Run it once.
func (s *Server) Run(ctx context.Context) error {
	defer s.closeStore()
	g, ctx := errgroup.WithContext(ctx)
	unserved, gone := context.WithCancel(context.WithoutCancel(ctx))
	defer gone()
	if s.replicas != nil {
		g.Go(func() error { return s.replicas.run(ctx, unserved.Done()) })
	}
	g.Go(func() error {
		defer close(s.archiver.next)
		return s.loop.Run(ctx)
	})
	g.Go(func() error {
		s.archiveChanges()
		return nil
	})
	g.Go(func() error {
		s.loop.Survey(ctx)
		return nil
	})
	if s.admin != nil {
		g.Go(func() error {
			s.sampler.run(ctx, s.loop.Current)
			return nil
		})
	}
	g.Go(func() error {
		s.keepTrace(ctx)
		return nil
	})
	g.Go(func() error {
		s.followPressure(ctx)
		return nil
	})
	g.Go(func() error { return s.upstream.Run(ctx) })
	g.Go(func() error { return s.names.Run(ctx) })
	g.Go(func() error { return s.cluster.Run(ctx) })
	g.Go(func() error {
		defer gone()
		s.waitForProviders(ctx)
		return s.grpc.Serve(ctx)
	})
	if s.listeners.REST != nil {
		g.Go(func() error {
			s.waitForProviders(ctx)
			return s.gate.ServePolls(unserved, s.listeners.REST, s.polls()) // those that poll learn what they drop no longer, too
		})
	}
	g.Go(func() error {
		s.tellHealth(ctx)
		return nil
	})
	if s.admin != nil {
		g.Go(func() error { return s.admin.Serve(unserved, s.gate.AdminListener(s.listeners.Admin)) })
	}
	s.gate.Follow(ctx, g.Go)
	if s.opts.File != "" {
		g.Go(func() error {
			s.followHeld(ctx)
			return nil
		})
		g.Go(func() error {
			discovery.WatchFile(ctx, s.opts.File, discovery.WatchOptions{
				Current: s.opts.Data, Refused: s.noteFile, Bell: &s.trigger, Logger: s.log, Registerer: s.metrics,
			}, s.reload)
			return nil
		})
	}
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
		s.log.Warn("closing the state directory", "error", err)
	}
}

// Plan returns the plan in force; nil before the first.
func (s *Server) Plan() *plan.Plan { return s.loop.Current() }

// Health tells what checkers found, of one service or, for an empty name, of
// all that have health checks.
func (s *Server) Health(ctx context.Context, service string) ([]health.ServiceReport, error) {
	found, err := s.loop.Health(ctx, service)
	s.hds.AddMetadata(found)
	return found, err
}

// Metrics returns everything that the server counts.
func (s *Server) Metrics() prometheus.Gatherer { return s.metrics }

// XDSAddress is where clients connect.
func (s *Server) XDSAddress() string { return s.listeners.XDS.Addr().String() }

// AdminAddress is where operators connect; empty without an admin interface.
func (s *Server) AdminAddress() string {
	if s.listeners.Admin == nil {
		return ""
	}
	return s.listeners.Admin.Addr().String()
}
