package operators

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// archiveDir is the directory of the archive in the state directory.
const archiveDir = "history"

// retryEvery is how often the archive is tried again while it can't be written.
const retryEvery = 5 * time.Second

// maxUnarchived bounds the changes that wait for a slow disk.
const maxUnarchived = 1000

// Archiver writes the changes of the plan into an archive, in a goroutine of its own: a
// slow disk delays no plan.
type Archiver struct {
	log  *slog.Logger
	kept *archive.Archive
	next chan plan.Change
	lost prometheus.Counter

	inMemory string // why the history is not on disk, where it should be; "" = it is

	mu      sync.Mutex
	failing string // why changes can't be written now
}

// OpenArchiver opens the archive in the state directory, or in memory where there is none.
// A history that can't be opened is no reason not to serve.
func OpenArchiver(stateDir string, log *slog.Logger, metrics prometheus.Registerer) *Archiver {
	a := &Archiver{log: log, next: make(chan plan.Change, maxUnarchived), lost: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "isobar_history_changes_lost_total",
		Help: "Changes of the plan that are missing in the history of the last day, because the disk failed or was too slow, or the change is too large.",
	})}
	size := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "isobar_history_bytes", Help: "Size of the history of the last day, on disk or, without a state directory, in memory.",
	}, func() float64 { return float64(a.kept.Bytes()) })
	metrics.MustRegister(a.lost, size)
	dir := ""
	if stateDir != "" {
		dir = filepath.Join(stateDir, archiveDir)
	}
	kept, err := archive.Open(dir, archive.Options{Logger: log})
	if err != nil {
		log.Error("can't keep the history of the last day on disk; keeping it in memory until the server stops", "error", err)
		a.inMemory = err.Error()
		kept, _ = archive.Open("", archive.Options{Logger: log}) // without files it can't fail
	}
	a.kept = kept
	return a
}

// Add hands a change over; it never waits.
func (a *Archiver) Add(c plan.Change) {
	select {
	case a.next <- c:
	default:
		a.lost.Inc()
	}
}

// Run writes changes until [Archiver.End] and until all are written. The newest change that
// can't be written is tried again: without another one nothing would tell that the disk
// works again.
func (a *Archiver) Run() {
	again := time.NewTicker(retryEvery)
	defer again.Stop()
	var owed *plan.Change
	for more := true; more; {
		var c plan.Change
		select {
		case c, more = <-a.next:
			if owed != nil && a.write(owed) {
				owed = nil
			}
			if more && !a.write(&c) {
				a.loses(owed)
				owed = &c
			}
		case <-again.C:
			if owed != nil && a.write(owed) {
				owed = nil
			}
		}
	}
	a.loses(owed)
	if err := a.kept.Close(); err != nil {
		a.log.Error("could not close the history of the last day", "error", err)
	}
}

// loses counts a change that is not written any more; nil = none.
func (a *Archiver) loses(owed *plan.Change) {
	if owed != nil {
		a.lost.Inc()
	}
}

// write reports whether a change need not be written again: the archive has it, or can never
// keep it.
func (a *Archiver) write(c *plan.Change) bool {
	err := a.kept.Append(c)
	if errors.Is(err, archive.ErrKnown) {
		// A replica that was killed shows the plan that it saved last, which may be
		// older than the history that it wrote.
		return true
	}
	if errors.Is(err, archive.ErrRefused) { // says nothing of the disk
		a.log.Error("the history of the last day lacks a change of the plan", "error", err)
		a.lost.Inc()
		return true
	}
	if news := a.isNews(err); news && err != nil {
		a.log.Error("the history of the last day lacks changes of the plan", "error", err)
	} else if news {
		a.log.Info("saving the history of the last day works again")
	}
	return err == nil
}

// End says that there will be no change any more.
func (a *Archiver) End() { close(a.next) }

// Archive returns what is written.
func (a *Archiver) Archive() *archive.Archive { return a.kept }

// isNews notes an error or its end, and reports whether that is news.
func (a *Archiver) isNews(err error) bool {
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

// Unsaved returns why the history can't be written; "" = it can.
func (a *Archiver) Unsaved() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return cmp.Or(a.inMemory, a.failing)
}
