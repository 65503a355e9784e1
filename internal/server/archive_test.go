package server_test

import (
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/server"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// moment asks what stood at a moment.
func (w *world) moment(at time.Time) (m admin.Moment) {
	w.t.Helper()
	if code := w.read("127.0.0.1", "/v1/history/moment?service=checkout&at="+url.QueryEscape(at.Format(time.RFC3339Nano)), &m); code != http.StatusOK {
		w.t.Fatalf("the moment of %s: %d", at, code)
	}
	return m
}

// differs is the largest difference between the shares of a moment and those of a plan.
func differs(t *testing.T, m *admin.Moment, p *plan.Plan) float64 {
	t.Helper()
	if m.Shares == nil {
		t.Fatalf("no shares at %s: %+v", m.At, m)
	}
	s, _ := p.Service("checkout")
	want, worst := plan.Outline(s), 0.0
	if len(want.Sources) != len(m.Shares.Sources) {
		t.Fatalf("%d sources, want %d", len(m.Shares.Sources), len(want.Sources))
	}
	for i := range want.Sources {
		for k, l := range m.Shares.Localities {
			share := 0.0
			for n, site := range want.Sites {
				if site == l {
					share = want.Sources[i].Shares[n]
				}
			}
			worst = max(worst, math.Abs(share-m.Shares.Sources[i].Shares[k]))
		}
	}
	return worst
}

// TestTheSameMomentAfterARestart: the shares that stood at a moment are the same before
// and after a restart, from the files of the state directory; and the timeline has the
// changes of both processes.
func TestTheSameMomentAfterARestart(t *testing.T) {
	cfg := configuration(t)
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	bubble.Test(t, func(t *testing.T) {
		var at []time.Time
		var stood []*plan.Plan
		var numbers []admin.Moment
		before := 0
		runWith(t, cfg, server.Options{}, func(w *world) {
			w.start(growing(time.Now().Add(time.Minute))...)
			for range 24 {
				stood = append(stood, w.tick())
				synctest.Wait() // it is written beside the loop
				at = append(at, time.Now().Add(time.Millisecond))
			}
			for i := range at {
				m := w.moment(at[i])
				if d := differs(t, &m, stood[i]); d > 1e-4 {
					t.Errorf("after tick %d: shares differ by %v", i, d)
				}
				numbers = append(numbers, m)
				before = m.Count
			}
		})
		if files, _ := filepath.Glob(filepath.Join(cfg.StateDir, "history", "*.changes")); len(files) == 0 {
			t.Fatal("no file was written")
		}
		runWith(t, cfg, server.Options{}, func(w *world) {
			w.start(everywhere(300)...)
			w.tick()
			synctest.Wait()
			for i := range at {
				m := w.moment(at[i])
				if d := differs(t, &m, stood[i]); d > 1e-4 || m.Change == nil || m.Change.Version != numbers[i].Change.Version || m.Number != numbers[i].Number {
					t.Errorf("after tick %d, seen after a restart: shares differ by %v, %+v", i, d, m.Change)
				}
			}
			var line admin.Timeline
			if code := w.read("127.0.0.1", "/v1/history/timeline?span=hour", &line); code != http.StatusOK {
				t.Fatal(code)
			}
			sum, restarts := 0, 0
			for _, n := range line.Changes {
				sum += n
			}
			var list admin.ChangeMarks
			if code := w.read("127.0.0.1", "/v1/history?brief=true", &list); code != http.StatusOK {
				t.Fatal(code)
			}
			for i := range list.Marks {
				if list.Marks[i].Trigger == plan.TriggerRestart {
					restarts++
				}
			}
			if sum <= before || before < 5 || restarts != 2 || len(line.Changes) != 240 {
				t.Errorf("%d changes, %d before the restart, %d restarts", sum, before, restarts)
			}
		})
	})
}

// TestServingWithoutAnArchive: a history that can't be kept on disk is told, and kept in
// memory.
func TestServingWithoutAnArchive(t *testing.T) {
	cfg := configuration(t)
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.StateDir, "history"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		runWith(t, cfg, server.Options{}, func(w *world) {
			w.start(everywhere(300)...)
			w.tick()
			var marks admin.ChangeMarks
			if code := w.read("127.0.0.1", "/v1/history?brief=true", &marks); code != http.StatusOK || len(marks.Marks) == 0 {
				t.Errorf("%d %+v", code, marks)
			}
		})
	})
}

// TestWhatIfRolledBack: what is foretold of a rollback comes true, and nothing of it
// before; an order that saw another state is refused.
func TestWhatIfRolledBack(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(growing(time.Now().Add(time.Minute))...)
		var first *plan.Plan
		for i := range 24 {
			p := w.tick()
			if i == 5 {
				first = p
			}
		}
		before := w.server.Plan()
		var d plan.Difference
		if code := w.order("/v1/whatif", `{"rollback": {"service": "checkout", "version": "`+first.VersionString()+`"}}`, &d); code != http.StatusOK || !d.Settled {
			t.Fatalf("%d %+v", code, d)
		}
		if w.server.Plan() != before {
			t.Error("the question changed the plan")
		}
		if moved := apart(before, first); moved > 1 && (len(d.Services) != 1 || len(d.Services[0].Sources) == 0) {
			t.Fatalf("%.1f points apart, but %+v", moved, d)
		}
		var refused admin.Problem
		for body, want := range map[string]int{
			`{"rollback": {"version": "0"}}`:                                                  http.StatusBadRequest,
			`{"rollback": {"version": "999999999"}}`:                                          http.StatusNotFound,
			`{"rollback": {"service": "nobody", "version": "` + first.VersionString() + `"}}`: http.StatusNotFound,
			`{"rollback": {"version": "` + first.VersionString() + `"}, "lose": ["us"]}`:      http.StatusBadRequest,
		} {
			if code := w.order("/v1/whatif", body, &refused); code != want {
				t.Errorf("%s: %d %+v, want %d", body, code, refused, want)
			}
		}
		var done admin.Operated
		if code := w.order("/v1/rollback", `{"service": "checkout", "version": "`+first.VersionString()+`", "force": true}`, &done); code != http.StatusOK {
			t.Fatalf("%d %+v", code, done)
		}
		after, _ := w.server.Plan().Service("checkout")
		for i := range d.Services {
			for _, s := range d.Services[i].Sources {
				for _, x := range s.Shares {
					got := 0.0
					for k := range after.Sites {
						if after.Sites[k].Group.Locality == x.Locality {
							got = after.Result.Source(s.Source).Shares[k]
						}
					}
					if math.Abs(got-x.Share.Settled) > 0.001 {
						t.Errorf("%s to %s: %v, foretold %v", s.Source, x.Locality, got, x.Share.Settled)
					}
				}
			}
		}
	})
}

// TestWhatIfCapacity: another capacity does what a file that declares it would.
func TestWhatIfCapacity(t *testing.T) {
	cfg := configuration(t)
	cfg.Admin.Writable = true
	inWorld(t, cfg, func(w *world) {
		w.start(everywhere(300)...)
		for range 10 {
			w.tick()
		}
		var file admin.Previewed
		if code := w.order("/v1/plan", strings.Replace(fileOf("250"), "max_rate: 250\n        concurrency: 40", "max_rate: 250\n        concurrency: 10", 1), &file); code != http.StatusOK || len(file.Services) != 1 {
			t.Fatalf("%d %+v", code, file)
		}
		var d plan.Difference
		if code := w.order("/v1/whatif", `{"capacity": [{"service": "checkout", "locality": "us/a", "factor": 0.25}]}`, &d); code != http.StatusOK || len(d.Services) != 1 {
			t.Fatalf("%d %+v", code, d)
		}
		for i := range d.Services[0].Localities {
			a, b := &d.Services[0].Localities[i], &file.Services[0].Localities[i]
			if math.Abs(a.Utilization.Settled-b.Utilization.Settled) > 0.02 {
				t.Errorf("%s: %+v, by the file %+v", a.Locality, a.Utilization, b.Utilization)
			}
		}
		var refused admin.Problem
		for body, want := range map[string]int{
			`{"capacity": [{"service": "checkout", "factor": 0}]}`:                     http.StatusBadRequest,
			`{"capacity": [{"service": "nobody", "factor": 2}]}`:                       http.StatusNotFound,
			`{"capacity": [{"service": "checkout", "locality": "mars", "factor": 2}]}`: http.StatusNotFound,
		} {
			if code := w.order("/v1/whatif", body, &refused); code != want {
				t.Errorf("%s: %d %+v, want %d", body, code, refused, want)
			}
		}
	})
}
