package server_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/store"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// moved puts every time in the state into another year, as if it had been saved
// by a machine whose clock was wrong.
func moved(t *testing.T, kept store.Store, year string) (times int) {
	t.Helper()
	for _, key := range []string{"plan", "health", "sources"} {
		v, err := kept.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		times += bytes.Count(v.Data, []byte(`"2000-`))
		if _, err := kept.CompareAndSwap(t.Context(), key, v.Revision, bytes.ReplaceAll(v.Data, []byte(`"2000-`), []byte(`"`+year+`-`))); err != nil {
			t.Fatal(err)
		}
	}
	return times
}

// TestClockThatJumps: state that was saved in the far future or past, because
// the clock was wrong then or is now, is served and decided upon like any other.
func TestClockThatJumps(t *testing.T) {
	for _, year := range []string{"2090", "9999", "1970", "0001"} {
		t.Run(year, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				kept := store.NewMemory()
				defer func() { _ = kept.Close() }()
				cfg := checked(t)
				var version uint64
				runWorld(t, cfg, kept, func(w *world) {
					w.checkers(&truth{}, "us/a", "us/b", "eu/a")
					w.start(clients("us/a", 4, constant(600))...)
					for range 3 {
						version = w.tick().Version
					}
				})
				if moved(t, kept, year) == 0 {
					t.Fatal("no times in the state")
				}
				log := &testhelp.Log{}
				runLogged(t, cfg, kept, slog.New(slog.NewTextHandler(log, nil)), func(w *world) {
					w.checkers(&truth{}, "us/a", "us/b", "eu/a")
					w.start(clients("us/a", 4, constant(1200))...)
					p := w.tick()
					if p.Version <= version {
						t.Errorf("version %d after %d", p.Version, version)
					}
					for range 14 { // until new clients of one address are believed
						p = w.tick()
					}
					noViolations(t, p)
					src := p.Services[0].Load.Source(loc("us/a"))
					if src == nil || src.Demand < 1000 || src.Demand > 1400 {
						t.Errorf("the new demand is not seen: %+v", src)
					}
					if healthOf(p, "10.2.0.1:80").String() != "healthy" {
						t.Errorf("checkers are not heard: %v", healthOf(p, "10.2.0.1:80"))
					}
				})
				if strings.Contains(log.String(), "level=ERROR") {
					t.Error(log.String())
				}
			})
		})
	}
}
