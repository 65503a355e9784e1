package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"time"

	"google.golang.org/grpc/status"

	"github.com/isobar-xds/isobar/internal/rpc"
	"github.com/isobar-xds/isobar/internal/xds"
)

// Limits of a connection over which a client polls.
const (
	restHeaderWait = 10 * time.Second
	restReadWait   = 30 * time.Second
	restIdle       = 5 * time.Minute
)

// serveREST serves clients that poll over HTTP until ctx ends.
func (s *Server) serveREST(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/", xds.Handler(s.xds, false))
	for _, path := range []string{rpc.CheckerPath, rpc.CheckerPathV2} {
		mux.Handle(path, s.hds.Handler())
	}
	srv := &http.Server{
		Handler: s.guardHTTP(s.enterHTTP(mux)), ReadHeaderTimeout: restHeaderWait, ReadTimeout: restReadWait, IdleTimeout: restIdle,
		MaxHeaderBytes: maxHeaderList, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.restListener()) }()
	select {
	case err := <-served:
		return fmt.Errorf("rest listener: %w", err)
	case <-ctx.Done():
	}
	patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if err := srv.Shutdown(patience); err != nil {
		s.log.Warn("some clients that poll did not let go", "error", errors.Join(err, srv.Close()))
	}
	if err := <-served; err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.log.Warn("the rest listener ended with an error", "error", err)
	}
	return nil
}

// guardHTTP turns a panic in a handler into the answer to that one request.
func (s *Server) guardHTTP(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		defer func() {
			if err != nil { // of no effect where an answer has begun
				http.Error(w, status.Convert(err).Message(), http.StatusInternalServerError)
			}
		}()
		defer s.panics.Recovered(&err, s.log, "method", r.URL.Path)
		h.ServeHTTP(w, r)
	})
}

// is2017 tells whether the configuration knows a client as one of 2017.
func (s *Server) is2017(n rpc.Node) bool {
	for _, pattern := range s.cfg.XDS.Clients2017 {
		for _, name := range []string{n.ID, n.Cluster} {
			if ok, err := path.Match(pattern, name); ok && err == nil {
				return true
			}
		}
	}
	return false
}
