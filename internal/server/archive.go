package server

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// archiveDir is the directory of the archive in the state directory.
const archiveDir = "history"

// maxUnarchived bounds the changes that wait for a slow disk.
const maxUnarchived = 1000

// archiver writes the changes of the plan into an archive, in a goroutine of its own: a
// slow disk delays no plan.
type archiver struct {
	kept *archive.Archive
	next chan plan.Change
	lost prometheus.Counter

	mu      sync.Mutex
	failing string // why changes can't be written now
}

// openArchive opens the archive beside the state, or in memory where the state is
// elsewhere. A history that can't be opened is no reason not to serve.
func (s *Server) openArchive() {
	a := &archiver{next: make(chan plan.Change, maxUnarchived), lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_history_changes_lost_total",
		Help: "Changes of the plan that are missing in the history of the last day, because the disk failed or was too slow.",
	})}
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "isobar_history_bytes", Help: "Size of the history of the last day, on disk or, without a state directory, in memory.",
	}, func() float64 { return float64(a.kept.Bytes()) })
	s.metrics.MustRegister(a.lost, size)
	dir := ""
	if s.files != nil {
		dir = filepath.Join(s.fixed.StateDir, archiveDir)
	}
	kept, err := archive.Open(dir, archive.Options{Logger: s.log})
	if err != nil {
		s.log.Error("can't keep the history of the last day on disk; keeping it in memory until the server stops", "error", err)
		a.failing = err.Error()
		kept, _ = archive.Open("", archive.Options{Logger: s.log}) // without files it can't fail
	}
	a.kept = kept
	s.archiver = a
}

// add hands a change over; it never waits.
func (a *archiver) add(c plan.Change) {
	select {
	case a.next <- c:
	default:
		a.lost.Inc()
	}
}

// archiveChanges writes changes until the loop has ended and all are written.
func (s *Server) archiveChanges() {
	a := s.archiver
	for c := range a.next {
		err := a.kept.Append(&c)
		if errors.Is(err, archive.ErrKnown) {
			// A replica that was killed shows the plan that it saved last, which may be
			// older than the history that it wrote.
			continue
		}
		if err != nil {
			a.lost.Inc()
		}
		if news := a.told(err); news && err != nil {
			s.log.Error("the history of the last day lacks changes of the plan", "error", err)
		} else if news {
			s.log.Info("saving the history of the last day works again")
		}
	}
	if err := a.kept.Close(); err != nil {
		s.log.Error("could not close the history of the last day", "error", err)
	}
}

// told notes an error or its end, and reports whether that is news.
func (a *archiver) told(err error) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	news := (text == "") != (a.failing == "")
	a.failing = text
	return news
}

// unsaved lists what can't be written to the state, and why.
func (s *Server) unsaved() []string {
	out := s.loop.Unsaved()
	s.archiver.mu.Lock()
	defer s.archiver.mu.Unlock()
	if s.archiver.failing != "" {
		out = append(out, "the history of the last day: "+s.archiver.failing)
	}
	return out
}
