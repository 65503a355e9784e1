package admin

import (
	"net/http"
	"time"
)

const (
	maxStreams     = 200              // readers of changes at once
	streamLook     = time.Second      // between two looks for something new
	streamBeat     = 15 * time.Second // after which a line is sent in any case
	streamPatience = 30 * time.Second // for a reader to take what it is sent
)

// getStream answers GET /v1/stream with a line of JSON at each change: first the
// whole, then what changed. With ?service=NAME it is that service of the plan, else
// the status and a line for each service. It takes none of the turns that large
// answers wait for: what is sent is made once for all readers.
func (s *Server) getStream(w http.ResponseWriter, r *http.Request) {
	if foreignPage(r) {
		fail(w, http.StatusForbidden, Problem{Error: "the request comes from a web page of another origin", Place: r.Header.Get("Origin")})
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		w.Header().Set("Retry-After", "30")
		fail(w, http.StatusServiceUnavailable, Problem{Error: "too many readers of changes", Fix: "close some consoles, or try again later"})
		return
	}
	out := &streamWriter{to: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // that of requests would end the stream
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that buffer would hold it back
	next := s.fleetLines(r)
	if name := r.URL.Query().Get("service"); name != "" {
		next = s.serviceLines(name)
	}
	look := time.NewTicker(streamLook)
	defer look.Stop()
	sent := time.Now()
	for !s.opts.Stopping() {
		line := next()
		if line == nil && time.Since(sent) >= streamBeat {
			line = []byte("{}\n")
		}
		if line != nil {
			if out.send(line) != nil {
				return // the reader is gone, or too slow
			}
			sent = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-look.C:
		}
	}
}

// fleetLines gives the next line of the fleet, or nil where nothing changed.
func (s *Server) fleetLines(r *http.Request) func() []byte {
	known := uint64(0)
	return func() []byte {
		set := s.live.now(r.Context(), s)
		line := set.message(known)
		known = set.number
		return line
	}
}

// serviceLines gives the next line of one service.
func (s *Server) serviceLines(name string) func() []byte {
	known := ""
	return func() []byte {
		p := s.opts.Planner.Current()
		if p == nil || p.VersionString() == known {
			return nil
		}
		known = p.VersionString()
		return append(s.detail(p, name), '\n')
	}
}

// streamWriter sends lines at once, and gives a reader only so long to take one.
type streamWriter struct {
	to      http.ResponseWriter
	control *http.ResponseController
}

func (w *streamWriter) send(line []byte) error {
	// The server's own limit is for answers that end. A connection without
	// deadlines, as in tests, does as well.
	_ = w.control.SetWriteDeadline(time.Now().Add(streamPatience))
	if _, err := w.to.Write(line); err != nil {
		return err
	}
	return w.control.Flush()
}
