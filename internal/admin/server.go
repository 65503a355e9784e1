package admin

import (
	"bytes"
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
	maxObjectBytes    = 4 << 20   // one service
	maxSetBytes       = 16 << 20  // all services of the API, as a configuration
	maxWhatIfBytes    = 256 << 10 // of lists that may be long; decoded, they take up to 60 times as much
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
	seen := &conditionalWrites{core: c}
	guards := &access{core: c, writes: make(chan struct{}, maxWrites)}
	s := &Server{
		core: c, access: guards,
		objects:  &objectAPI{core: c, conditionalWrites: seen, draining: make(chan struct{}, maxDrains)},
		loop:     &loopAPI{core: c, conditionalWrites: seen, previews: make(chan struct{}, 1)},
		replicas: &replicaAPI{core: c, passed: http.NewServeMux()},
		plans:    &planAPI{c}, fleet: &fleetAPI{c}, history: &historyAPI{c}, process: &processAPI{c},
		state: &statusAPI{core: c, writes: seen, access: guards, streams: make(chan struct{}, maxStreams)},
	}
	s.handler = s.routes()
	return s, nil
}

// CarryOut answers a write that another replica of the group passed on. That replica has
// checked that the operator may write.
func (s *Server) CarryOut(ctx context.Context, o Forwarded) (status int, body []byte) {
	return s.replicas.carryOut(ctx, o)
}

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

// Health is the body of /livez and /readyz.
type Health struct {
	Status  string `json:"status"` // "ok" or what is wrong
	Version string `json:"version,omitempty"`
}

// IsProbe reports whether what a client has sent is the whole head of a request of
// /livez or /readyz.
func IsProbe(head []byte) bool {
	rest, ok := bytes.CutPrefix(head, []byte("GET /livez"))
	if !ok {
		rest, ok = bytes.CutPrefix(head, []byte("GET /readyz"))
	}
	return ok && len(rest) > 0 && (rest[0] == ' ' || rest[0] == '?') && bytes.Contains(rest, []byte("\r\n\r\n"))
}

// processAPI answers what is asked of any process, and records what is decided.
type processAPI struct{ *core }

// livez fails when the control loop no longer advances: a restart is the
// remedy then. A loop that has not begun is alive; see readyz.
func (s *processAPI) livez(w http.ResponseWriter, _ *http.Request) {
	if wrong := s.stalled(); wrong != "" {
		reply(w, http.StatusServiceUnavailable, Health{Status: wrong})
		return
	}
	reply(w, http.StatusOK, Health{Status: "ok"})
}

// readyz fails while there is no plan to serve, and when the server is about to
// stop.
func (s *processAPI) readyz(w http.ResponseWriter, _ *http.Request) {
	p := s.opts.Planner.Current()
	switch wrong := s.stalled(); {
	case p == nil:
		reply(w, http.StatusServiceUnavailable, Health{Status: "no plan has been published yet"})
	case wrong != "":
		reply(w, http.StatusServiceUnavailable, Health{Status: wrong, Version: p.VersionString()})
	case s.opts.Process.Stopping():
		reply(w, http.StatusServiceUnavailable, Health{Status: "stopping", Version: p.VersionString()})
	default:
		reply(w, http.StatusOK, Health{Status: "ok", Version: p.VersionString()})
	}
}
