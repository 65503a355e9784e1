package health_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// FuzzSavedKeeper begins with all of the saved state of health discovery, which
// may be damaged in any way: placement, checkers, drains and verdicts. The
// keeper must work, and what it saves must be as good.
func FuzzSavedKeeper(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"checkers":[{"id":"c","locality":"eu/a","protocols":"http"}],"placement":{},"drains":[{}],"book":{"endpoints":[{"service":"web","address":"10.0.0.0:80","status":"healthy"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var saved health.SavedKeeper
		if json.Unmarshal(data, &saved) != nil {
			return
		}
		w := one(t)
		for range 2 {
			k := health.NewKeeper(interval, interval, saved, start)
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
