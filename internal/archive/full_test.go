package archive

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar/internal/plan"
)

// TestFullDisk: a write that fails costs the oldest changes, not the newest.
func TestFullDisk(t *testing.T) {
	a, err := Open(t.TempDir(), Options{MaxAge: 24 * time.Minute}) // a file a minute
	if err != nil {
		t.Fatal(err)
	}
	put := func(v uint64) error {
		return a.Append(&plan.Change{Version: v, Previous: v - 1, Made: time.Unix(int64(60*v), 0), Trigger: plan.TriggerTick})
	}
	for v := uint64(1); v <= 10; v++ {
		if err := put(v); err != nil {
			t.Fatal(err)
		}
	}
	before := len(a.refs())
	last := a.segments[len(a.segments)-1]
	if err := last.file.Close(); err != nil { // its writes fail from now on
		t.Fatal(err)
	}
	if err := a.Append(&plan.Change{Version: 11, Previous: 10, Made: time.Unix(600, 1), Trigger: plan.TriggerTick}); err != nil {
		t.Fatal(err)
	}
	all, err := a.Marks("")
	if err != nil || all[len(all)-1].Version != 11 || len(all) >= before+1 || len(all) < before-1 {
		t.Errorf("%d changes of %d, the newest is %d: %v", len(all), before, all[len(all)-1].Version, err)
	}
	_ = a.Close() // one of its files is closed already
}
