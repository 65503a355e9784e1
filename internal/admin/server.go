package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/isobar-xds/isobar/internal/rpc"
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

// Server is the admin interface.
type Server struct {
	opts     Options
	handler  http.Handler
	passed   *http.ServeMux // the writes that replicas of a group pass on
	writes   chan struct{}  // a token for each write under way
	previews chan struct{}  // of those that play changes through
	drains   sync.Mutex     // held from the check of a write that drains until it has happened
	draining chan struct{}  // a token for each drain of an endpoint that has it or waits for it
	bodies   budget
	answers  budget // what large answers hold until clients have taken them
	panics   rpc.LogLimit
	metrics  *metrics
	live     live
	flows    flowCache
	orders   sync.Mutex    // held by an order with If-Match from the comparison until it is carried out
	streams  chan struct{} // a token for each reader of changes
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
	s := &Server{
		opts: opts, metrics: m,
		writes: make(chan struct{}, maxWrites), draining: make(chan struct{}, maxDrains), previews: make(chan struct{}, 1), bodies: budget{most: opts.MaxBodies},
		answers: budget{most: opts.MaxAnswers}, streams: make(chan struct{}, maxStreams),
	}
	s.handler = s.routes()
	return s, nil
}

// Handler gives the interface without a server around it.
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
