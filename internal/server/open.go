package server

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	grpchealth "google.golang.org/grpc/health"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/config"
	"github.com/isobar-xds/isobar/internal/identity"
	"github.com/isobar-xds/isobar/internal/listen"
	"github.com/isobar-xds/isobar/internal/xds/csds"
)

// Open is New with the listeners that the configuration names. They are opened
// once the state directory is locked: a second server with the same
// configuration is told of the first one, and not of its ports.
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
	s := &Server{fixed: cfg.Fixed, opts: opts, log: opts.Log, metrics: prometheus.NewRegistry(), sampler: newSampler()}
	s.current.Store(&cfg.Live)
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics.MustRegister(&matrixCollector{current: s.currentPlan, listed: func() []string { return s.current.Load().MetricsMatrix }})
	if err := s.build(listeners); err != nil {
		s.grpc.Close()
		s.closeStore()
		if s.archiver != nil {
			_ = s.archiver.kept.Close() // nothing was written
		}
		return nil, err
	}
	return s, nil
}

func (s *Server) build(listeners func() (Listeners, error)) error {
	s.identity = identity.NewMetrics(s.metrics)
	gate, err := listen.Open(listen.Options{
		Settings: &s.fixed, Policy: s.policy, IsProbe: admin.IsProbe,
		KnownHost:     func(host string) bool { return admin.KnownHost(host, s.fixed.Admin.Hosts) },
		MessageMemory: s.opts.MessageMemory, Trigger: &s.trigger, Identity: s.identity, Log: s.log, Registerer: s.metrics,
	})
	if err != nil {
		return err
	}
	s.gate = gate
	if err := s.openSources(); err != nil {
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
	if err := s.buildLoop(); err != nil {
		return err
	}
	s.openTrace()
	s.csds, s.health = csds.New(s.xds), grpchealth.NewServer()
	s.grpc = s.gate.NewServers(s.listeners, services{s}, s.replicas.tracked())
	return s.buildAdmin()
}
