package admin

import (
	"bufio"
	"net/http"
	"slices"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/plan"
)

const (
	maxStreams     = 200              // readers of changes at once
	streamLook     = time.Second      // between two looks for something new
	streamBeat     = 15 * time.Second // after which a line is sent in any case
	streamPatience = 30 * time.Second // for a reader to take a line
	streamBuffer   = 16 << 10         // of each reader
)

// statusAPI shows how things stand: at once, by service, between localities, and as they
// change.
type statusAPI struct {
	*core

	writes  *conditionalWrites
	access  *access
	live    live
	flows   flowCache
	places  placesOf
	streams chan struct{} // a token for each reader of changes
}

// getStream answers GET /v1/stream with a line of JSON at each change: first the
// whole, then what changed. With ?service=NAME it is that service of the plan, else
// the status and a line for each service. It takes none of the turns that large
// answers wait for: what is sent is encoded once for all readers.
func (s *statusAPI) getStream(w http.ResponseWriter, r *http.Request) {
	if foreignPage(r) {
		failForeign(w, r)
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
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	s.live.join()
	defer s.live.leave()
	control := http.NewResponseController(w)
	// The server's own limits are for requests and answers that end. Connections
	// without deadlines, as in tests, do as well.
	_ = control.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies that buffer would hold it back
	next := s.fleetLines(r)
	if name := r.URL.Query().Get("service"); name != "" {
		next = s.serviceLines(name)
	}
	s.follow(r, next, &streamWriter{to: bufio.NewWriterSize(w, streamBuffer), control: control})
}

// follow sends lines until the reader is gone or too slow, loses its access, or
// the server stops.
func (s *statusAPI) follow(r *http.Request, next func(*bufio.Writer) bool, out *streamWriter) {
	look := time.NewTicker(streamLook)
	defer look.Stop()
	beat := time.Now()
	for !s.opts.Process.Stopping() {
		sent, err := out.send(next)
		if !sent && err == nil && time.Since(beat) >= streamBeat {
			sent, err = out.send(func(w *bufio.Writer) bool { _, _ = w.WriteString("{}\n"); return true })
		}
		if err != nil {
			return
		}
		if sent {
			beat = time.Now()
		}
		select {
		case <-r.Context().Done():
			return
		case <-look.C:
		}
		if s.opts.Token != nil && s.access.needsToken(r) && !s.access.showsToken(r) {
			return // the token was replaced meanwhile
		}
	}
}

// fleetLines writes the next line of the fleet, and reports whether anything changed.
func (s *statusAPI) fleetLines(r *http.Request) func(*bufio.Writer) bool {
	known := uint64(0)
	return func(w *bufio.Writer) bool {
		set := s.live.now(r.Context(), s)
		if set.number == known {
			return false
		}
		set.write(w, known)
		known = set.number
		return true
	}
}

// serviceLines does so for one service.
func (s *statusAPI) serviceLines(name string) func(*bufio.Writer) bool {
	known := ""
	return func(w *bufio.Writer) bool {
		p := s.opts.Planner.Current()
		if p == nil || p.VersionString() == known {
			return false
		}
		var line []byte
		line, known = s.live.detail(s, name)
		_, _ = w.Write(line)
		return true
	}
}

// streamWriter sends lines at once, and gives a reader only so long to take one.
type streamWriter struct {
	to      *bufio.Writer
	control *http.ResponseController
}

// send writes a line, if there is one, and reports whether there was.
func (w *streamWriter) send(line func(*bufio.Writer) bool) (sent bool, err error) {
	_ = w.control.SetWriteDeadline(time.Now().Add(streamPatience))
	if !line(w.to) {
		return false, nil
	}
	if err := w.to.Flush(); err != nil {
		return true, err
	}
	return true, w.control.Flush()
}

// detail is one service of a plan, as GET /v1/plan has it.
func (s *statusAPI) detail(p *plan.Plan, name string) []byte {
	svc, found := p.Service(name)
	if !found {
		return encoded(map[string]any{"version": p.VersionString(), "service": nil})
	}
	overrides := slices.DeleteFunc(s.opts.Objects.Overrides(), func(o isobar.HealthOverride) bool { return o.Service != name })
	view := viewPlan(p)
	view.Services = []ServiceView{s.viewService(svc, overrides, s.opts.Fleet.Subscribers())}
	return encoded(map[string]any{
		"version": view.Version, "made": view.Made, "trigger": view.Trigger, "state": s.writes.operatorState(p, name), "service": view.Services[0],
	})
}
