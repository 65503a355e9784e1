package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	grpchealth "google.golang.org/grpc/health"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/admission"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/config/strict"
	"github.com/isobar-xds/isobar/internal/console"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/discovery"
	"github.com/isobar-xds/isobar/internal/hds"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/lrs"
	"github.com/isobar-xds/isobar/internal/operators"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/providers"
	"github.com/isobar-xds/isobar/internal/reload"
	"github.com/isobar-xds/isobar/internal/replay"
	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/xds"
	"github.com/isobar-xds/isobar/internal/xds/csds"
	"github.com/isobar-xds/isobar/internal/xds/view"
)

// New builds a server from a valid configuration. Nothing is served before
// Run; on an error the listeners are left to the caller.
func New(cfg *config.Config, ls Listeners, opts Options) (*Server, error) {
	if ls.XDS == nil {
		return nil, errors.New("server: a listener for xDS is required")
	}
	return build(cfg, opts, func() (Listeners, error) { return ls, nil })
}

// Open is New with the listeners that the configuration names. They are opened once the state
// directory is locked: the error of a second server with the same configuration then names the
// first one, and not its ports.
func Open(ctx context.Context, cfg *config.Config, opts Options) (*Server, error) {
	var opened Listeners
	s, err := build(cfg, opts, func() (Listeners, error) {
		var err error
		opened, err = listen.All(ctx, &cfg.Fixed)
		return opened, err
	})
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return s, nil
}

func build(cfg *config.Config, opts Options, listeners func() (Listeners, error)) (*Server, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Boot == nil {
		opts.Boot = boot
	}
	s := &Server{
		settings: reload.NewSettings(cfg), opts: opts, log: opts.Log, metrics: prometheus.NewRegistry(),
		sampler: operators.NewSampler(), unserved: make(chan struct{}),
	}
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics.MustRegister(operators.NewMatrix(s.currentPlan, func() []string { return s.settings.Current().MetricsMatrix }))
	if err := s.build(listeners); err != nil {
		s.grpc.Close()
		s.closeStore()
		if s.archiver != nil {
			_ = s.archiver.Archive().Close() // nothing was written
		}
		return nil, err
	}
	return s, nil
}

// build builds the parts in their order.
func (s *Server) build(listeners func() (Listeners, error)) error {
	s.identity = identity.NewMetrics(s.metrics)
	gate, err := listen.Open(listen.Options{
		Settings: &s.settings.Fixed, Policy: s.settings.Policy, IsProbe: admin.IsProbe,
		KnownHost:     func(host string) bool { return admin.KnownHost(host, s.settings.Fixed.Admin.Hosts) },
		MessageMemory: s.opts.MessageMemory, Trigger: &s.trigger, Identity: s.identity, Log: s.log, Registerer: s.metrics,
	})
	if err != nil {
		return err
	}
	s.gate = gate
	if err := s.buildSources(); err != nil {
		return err
	}
	err = readable(s.opts.Store)
	if err != nil {
		return err
	}
	if s.listeners, err = listeners(); err != nil {
		return err
	}
	s.gate.Limit(&s.listeners)
	s.buildServices()
	if err := s.buildLoop(); err != nil {
		return err
	}
	s.recordings = operators.NewRecordings(s.loop, s.opts.Version, s.rollingTrace())
	s.grpc = s.gate.NewServers(s.listeners, s.services, s.tracker())
	return s.buildAdmin()
}

// buildSources opens the state and fills the registry from it and the file.
func (s *Server) buildSources() error {
	stateDir := ""
	if s.opts.Store == nil {
		files, err := store.Open(s.settings.Fixed.StateDir, store.Options{Logger: s.log, Registerer: s.metrics})
		if err != nil {
			return err
		}
		s.files, s.opts.Store, stateDir = files, files, s.settings.Fixed.StateDir
	}
	s.kept = newLoopState(s.opts.Store)
	var err error
	if s.registry, err = discovery.Open(context.Background(), discovery.Options{
		Store: s.opts.Store, Validate: config.CheckCalls, Logger: s.log, Registerer: s.metrics, Shared: s.shared(),
	}); err != nil {
		return err
	}
	if s.providers, err = providers.Open(&providers.Options{
		Registry: s.registry, Store: s.opts.Store, Registerer: s.metrics, Log: s.log, Dial: s.opts.DialSource, DialDNS: s.opts.DialDNS,
		MayWrite: s.writesStatuses, Plan: s.currentPlan,
	}); err != nil {
		return err
	}
	if s.configuration, err = reload.Start(&reload.Options{
		Settings: s.settings, Path: s.opts.File, Data: s.opts.Data, Registry: s.registry, Providers: s.providers, Plan: s.currentPlan,
		State: s.kept, Group: s.openOffers(), Trigger: &s.trigger, Log: s.log, Registerer: s.metrics,
	}); err != nil {
		return err
	}
	s.opts.Data = nil // it may be large
	logOverrides(s.registry, s.log)
	s.archiver = operators.OpenArchiver(stateDir, s.log, s.metrics)
	return nil
}

// buildServices builds the stream layers.
func (s *Server) buildServices() {
	streams := xds.New(s.xdsOptions())
	reporters := listen.NewReporters(s.subscriptions(streams), func() bool { return s.settings.Current().SubscribedOnly })
	reports := lrs.New(lrs.Options{
		ManagementCluster: config.ReservedName,
		Interval:          s.settings.Interval,
		Services:          func() []string { return serviceNames(s.registry) },

		EndpointGranularity: s.settings.Fixed.XDS.EndpointLoad, MaxStreams: s.settings.Fixed.XDS.MaxStreams,
		Admit: s.gate.Admits(identity.RoleClient), MayReport: reporters.May, Place: s.providers.Place, Account: listen.ReportingAccount,
		ReportMemory: s.settings.Fixed.XDS.Limits().ReportMegabytes << 20, Messages: s.gate.MessageMemory,
		Log: s.log, Registerer: s.metrics,
	})
	checkers := hds.New(hds.Options{
		Interval: s.settings.Interval,
		Admit:    s.gate.Admits(identity.RoleChecker),
		Place:    s.providers.Place,
		Account:  listen.AnonymousAccount,
		Identity: listen.ProvenIdentity,

		EnvoyEndpoints: s.settings.Fixed.XDS.EnvoyEndpoints,
		Log:            s.log, Registerer: s.metrics,
	})
	s.services = &services{settings: s.settings, xds: streams, lrs: reports, hds: checkers, csds: csds.New(streams), health: grpchealth.NewServer()}
	s.clients = operators.NewClients(streams, reports, s.settings.Interval, s.currentPlan)
}

func (s *Server) xdsOptions() xds.Options {
	o := xds.Options{
		Log: s.log, Registerer: s.metrics, MaxStreams: s.settings.Fixed.XDS.MaxStreams, NameMemory: s.settings.Fixed.XDS.Limits().NameMegabytes << 20,
		Is2017: s.settings.Is2017, Admit: s.gate.Admits(identity.RoleClient), Account: listen.AnonymousAccount, Place: s.providers.Place,
		Published: s.opts.Published,
	}
	if s.settings.Fixed.Replicas != nil {
		o.HoldRemovals = true
		o.Await = func(ctx context.Context, peer, version string) error {
			return s.member.Await(ctx, peer, version)
		}
		o.Returns = func() error { return s.member.Returns() }
	}
	return o
}

// buildLoop builds the loop between the stream layers.
func (s *Server) buildLoop() error {
	if err := s.joinGroup(); err != nil {
		return err
	}
	builder := view.NewBuilder(view.Options{Registerer: s.metrics, Refused: s.refused})
	options := control.Options{
		Timing: func() control.Timing {
			c := s.settings.Current()
			return control.Timing{Tick: c.Tick, Interval: c.ReportInterval, Degradation: c.Degradation.Plan()}
		},
		SurveyEvery: func() time.Duration { return s.settings.Current().N1Interval },
		Topology:    s.registry, Checkers: checkers{s.services.hds}, Reports: s.services.lrs, LoadMemory: 2 * s.settings.Fixed.XDS.Limits().ReportMegabytes << 20,
		Clients: s.services.xds, State: newLoopState(s.opts.Store),
		Outdated: s.providers.Outdated, Ordered: healthChangesIn(s.registry),
		Views:   func(p *plan.Plan, previous *view.Set) *view.Set { return builder.Build(p, previous) },
		Changed: s.archiver.Add,
		Silent:  s.clients.SilentOf, Boot: s.opts.Boot,
		ExceptionsOnly: func() bool { return s.settings.Current().MetricsExceptions },
		Log:            s.log, Registerer: s.metrics,
	}
	loop, err := s.newLoop(&options)
	if err != nil {
		return err
	}
	s.loop, s.operations = loop, operators.Operations{Loop: loop, HDS: s.services.hds}
	s.services.loop = loop
	s.configuration.Serve(s.services, s.clients, loop)
	return nil
}

// refused logs a resource that is not valid, and so is not sent.
func (s *Server) refused(r view.Refusal) {
	s.log.Error("a resource was not sent; clients keep the last good one", "type", r.Type, "service", r.Service, "source", r.Source.String(), "error", r.Err)
}

// rollingTrace prepares the rolling trace; nil where none is configured.
func (s *Server) rollingTrace() *replay.Roller {
	t := s.settings.Fixed.Trace
	if t == nil {
		return nil
	}
	return replay.NewRoller(replay.RollOptions{
		Directory: t.Directory, Keep: t.Keep, MaxBytes: t.MaxBytes,
		Version: s.opts.Version, Open: s.opts.CreateTrace, Logger: s.log, Registerer: s.metrics,
	})
}

func (s *Server) buildAdmin() error {
	if s.listeners.Admin == nil {
		return nil
	}
	page, err := s.console()
	if err != nil {
		return err
	}
	fixed := &s.settings.Fixed.Admin
	a, err := admin.New(admin.Options{
		Objects: s.registry, Parser: reload.NewParser(s.settings), Planner: s.operations, Operator: s.operations,
		Fleet: s.clients, HealthChecks: s.operations, Configuration: s.configuration, Providers: s.providers,
		Recorder: s.recordings, Charts: operators.Charts{Sampler: s.sampler, Leading: s.leading()},
		Process: &operators.Process{
			Live: s.settings.Current, Gate: s.gate, XDS: s.services.xds, LRS: s.services.lrs, HDS: s.services.hds, Loop: s.loop,
			Configuration: s.configuration, Providers: s.providers, Clients: s.clients, Recordings: s.recordings, Archiver: s.archiver,
			Group: s.replicas(), Shown: s.shownCertificates,
		},
		Replicas: s.replicas(), Archive: s.archiver.Archive(), Nearest: strict.Nearest,
		Rules: admin.Rules{
			Identities: s.gate, Writable: fixed.Writable, Hosts: fixed.Hosts, Token: s.gate.TokenCheck(), TokenForAll: fixed.TokenForAll,
		},
		Handlers: admin.Handlers{
			Console: page, Polls: s.gate.HTTP(s.services.hds.Handler()), BasePath: fixed.BasePath, Accepting: admission.TrackRequests,
		},
		Metrics: admin.Metrics{Gatherer: s.metrics, Registerer: s.metrics},
		Logger:  s.log,
	})
	s.admin = a
	return err
}

// console returns the web console; nil where the configuration or the command line
// leaves it out.
func (s *Server) console() (http.Handler, error) {
	if !s.settings.Fixed.Admin.Console || s.opts.NoConsole {
		return nil, nil //nolint:nilnil // admin takes nil for none
	}
	return console.Handler()
}

// currentPlan is the plan in force; nil while the loop is not built.
func (s *Server) currentPlan() *plan.Plan {
	if s.loop == nil {
		return nil
	}
	return s.loop.Current()
}

// serviceNames lists the services that clients may report on.
func serviceNames(registry *discovery.Registry) []string {
	topology, _ := registry.State()
	out := make([]string, len(topology.Services))
	for i := range topology.Services {
		out[i] = topology.Services[i].Name
	}
	return out
}

// maxOverridesLogged bounds how many overrides one line of the log names.
const maxOverridesLogged = 20

// logOverrides logs at the start the overrides that operators set earlier: they are in
// force again, and the configuration does not show them.
func logOverrides(registry *discovery.Registry, log *slog.Logger) {
	all := registry.Overrides()
	if len(all) == 0 {
		return
	}
	var told []string
	for i, o := range all {
		if i == maxOverridesLogged {
			told = append(told, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		told = append(told, fmt.Sprintf("%s %s %s", o.Service, o.Address, o.Status))
	}
	log.Warn("health set by operators is in force; GET /v1/health of the admin interface lists it", "overrides", told)
}

// healthChangesIn returns the health changes of operators, as the history tells it.
func healthChangesIn(r *discovery.Registry) func(after, upTo uint64) plan.Origin {
	return func(after, upTo uint64) plan.Origin {
		changes := r.HealthChanges(after, upTo)
		if len(changes) == 0 {
			return plan.Origin{}
		}
		out := plan.Origin{Trigger: plan.TriggerOperator, About: changes[0].Service}
		var who, reasons []string
		for i := range changes {
			o := &changes[i]
			if o.Service != out.About {
				out.About = "" // several services
			}
			reason := o.What
			if o.Reason != "" {
				reason += ": " + o.Reason
			}
			reasons = append(reasons, reason)
			if !slices.Contains(who, o.Who) {
				who = append(who, o.Who)
			}
		}
		out.Who, out.Reason = strings.Join(who, ", "), strings.Join(reasons, "; ")
		return out
	}
}
