package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limits of the HTTP server. The write timeout leaves room for a CPU profile
// of 30 s and for the slowest reader of a large plan. Clients on a machine that
// is overloaded may take long from the connection to the request, and that is
// when they are needed.
const (
	readHeaderTimeout = 15 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 90 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 5 * time.Second
	maxHeaderBytes    = 16 << 10
	maxObjectBytes    = 4 << 20  // one service
	maxSetBytes       = 16 << 20 // all services of the API, as a configuration
	maxHealthBytes    = 1 << 10
	maxWrites         = 64 // under way at once; each may wait for a plan
	maxDrains         = maxWrites / 2
)

// Server is the admin interface. Each of its parts answers the requests of one subject.
type Server struct {
	*core

	access   *access
	objects  *objectAPI
	loop     *loopAPI
	replicas *replicaAPI
	plans    *planAPI
	fleet    *fleetAPI
	state    *statusAPI
	history  *historyAPI
	process  *processAPI
	handler  http.Handler
}

// New builds the interface; nothing listens yet.
func New(opts Options) (*Server, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	c := &core{opts: opts, metrics: m, bodies: budget{most: opts.MaxBodies}, decoded: newTurns(), answers: budget{most: opts.MaxAnswers}}
	seen := &orders{core: c}
	guards := &access{core: c, writes: make(chan struct{}, maxWrites)}
	s := &Server{
		core: c, access: guards,
		objects:  &objectAPI{core: c, orders: seen, draining: make(chan struct{}, maxDrains)},
		loop:     &loopAPI{core: c, orders: seen, previews: make(chan struct{}, 1)},
		replicas: &replicaAPI{core: c, passed: http.NewServeMux()},
		plans:    &planAPI{c}, fleet: &fleetAPI{c}, history: &historyAPI{c}, process: &processAPI{c},
		state: &statusAPI{core: c, orders: seen, access: guards, streams: make(chan struct{}, maxStreams)},
	}
	s.handler = s.routes()
	return s, nil
}

// Status is the state of the fleet, as GET /v1/status has it.
func (s *Server) Status(ctx context.Context) Status {
	return s.state.status(ctx, s.opts.Planner.Current())
}

// CarryOut answers a write that another replica of the group passed on. That replica has
// checked that the operator may write.
func (s *Server) CarryOut(ctx context.Context, o Forwarded) (status int, body []byte) {
	return s.replicas.carryOut(ctx, o)
}

// Handler returns the interface without a server around it.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers on the listener until ctx ends, then lets requests finish for
// a few seconds. It closes the listener. It returns nil after ctx ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
	if s.opts.Accepting != nil {
		s.opts.Accepting(srv)
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := srv.Shutdown(bounded)
	if err != nil {
		err = srv.Close()
	}
	<-done //nolint:errcheck // it says that the server was closed, which we did
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}
