package health_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// FuzzSaved reads saved state that may be damaged in any way: it must be
// usable, and survive being saved again.
func FuzzSaved(f *testing.F) {
	f.Add([]byte(`{"endpoints":[{"service":"web","address":"10.0.0.0:80","status":"healthy","since":"2026-03-01T11:00:00Z","votes":[{"checker":"eu/a-0","status":"timeout","heard":"2026-03-01T11:00:00Z"}]}]}`))
	f.Add([]byte(`{"endpoints":[{"service":"web","address":"10.0.0.0:80","waiting":"9999-12-31T00:00:00Z"},{"service":"web","address":"10.0.0.0:80"}]}`))
	f.Add([]byte(`{"endpoints":[{"since":"0001-01-01T00:00:01Z","status":"degraded"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var saved health.Saved
		if json.Unmarshal(data, &saved) != nil {
			return
		}
		w := one(t)
		w.table = health.NewVerdictTable(health.Settings{ReportInterval: interval}, saved, start)
		w.run(3 * interval)
		if len(w.table.Explain("web")) != 3 {
			t.Error("endpoints are missing")
		}
		again := w.table.Save()
		if _, err := json.Marshal(again); err != nil {
			t.Error(err)
		}
		health.NewVerdictTable(health.Settings{}, again, w.now)
	})
}

// FuzzProtocols reads sets of protocols.
func FuzzProtocols(f *testing.F) {
	for _, s := range []string{"", "http", "http+tcp+grpc+redis", "redis+redis", "+", "HTTP"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var p, back health.Protocols
		if p.UnmarshalText([]byte(s)) != nil {
			return
		}
		if err := back.UnmarshalText([]byte(p.String())); err != nil || back != p {
			t.Errorf("%q: %v, then %v, %v", s, p, back, err)
		}
	})
}

// FuzzSavedMonitor begins with all of the saved state of health discovery, which
// may be damaged in any way: placement, checkers, drains and verdicts. The
// monitor must work, and what it saves must be as good.
func FuzzSavedMonitor(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"checkers":[{"id":"c","locality":"eu/a","protocols":"http"}],"placement":{},"drains":[{}],"book":{"endpoints":[{"service":"web","address":"10.0.0.0:80","status":"healthy"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var saved health.SavedMonitor
		if json.Unmarshal(data, &saved) != nil {
			return
		}
		w := one(t)
		for range 2 {
			k := health.NewMonitor(interval, interval, saved, start)
			now := start
			for i := range 4 {
				now = now.Add(interval)
				e := health.Event{Now: now, Topology: w.topology}
				if i > 0 {
					e.Connected = []health.Checker{{ID: "c", Locality: isobar.MustLocality("eu/a"), Protocols: health.ProtocolsOf(isobar.CheckHTTP)}}
				}
				if r := k.Observe(e); !r.Next.IsZero() && r.Next.Before(now.Add(-time.Hour)) {
					t.Errorf("wants to be asked again at %v, which was long ago", r.Next)
				}
			}
			saved = k.Save()
			if _, err := json.Marshal(saved); err != nil {
				t.Fatal(err)
			}
		}
	})
}
