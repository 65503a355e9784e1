package server_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// TestDrainIsInTheHistory: the history tells who drained a locality and why, and who ended
// the drain; the status tells it while the locality is drained.
func TestDrainIsInTheHistory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		cfg := configuration(t)
		cfg.Admin.Writable = true
		cfg.StateDir = filepath.Join(t.TempDir(), "state")
		runWorld(t, cfg, nil, func(w *world) {
			w.start(everywhere(300)...)
			w.tick()
			newest := func() plan.Change {
				t.Helper()
				var list admin.ChangeList
				w.read("127.0.0.1", "/v1/history?service=checkout", &list)
				if len(list.Changes) == 0 {
					t.Fatal("no changes")
				}
				return list.Changes[0]
			}
			for _, x := range []struct{ path, reason, want string }{
				{"/v1/drain?force=true", "kernel update", "drain of "}, {"/v1/undrain", "it is done", "end of the drain of "},
			} {
				var out admin.Drained
				if code := w.order(x.path, `{"service": "checkout", "locality": "us/b", "who": "ann", "reason": "`+x.reason+`"}`, &out); code != 200 {
					t.Fatalf("%s: %d %+v", x.path, code, out)
				}
				c := newest()
				if c.Trigger != plan.TriggerOperator || c.Who != "ann" || c.About != "checkout" || !strings.HasPrefix(c.Reason, x.want) || !strings.HasSuffix(c.Reason, " in us/b: "+x.reason) {
					t.Errorf("%s: %+v", x.path, c)
				}
				drained := false
				for _, a := range w.status().Attention {
					drained = drained || a.Code == admin.LocalityDrained && strings.Contains(a.Text, "(ann: kernel update)")
				}
				if drained != (x.want == "drain of ") {
					t.Errorf("after %s the status has %v", x.path, admin.AttentionTexts(w.status().Attention))
				}
			}
		})
	})
}
