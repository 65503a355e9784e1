//go:build !race

package archive_test

import (
	"math/rand/v2"
	"testing"

	"github.com/isobar-xds/isobar/internal/archive"
	"github.com/isobar-xds/isobar/internal/plan"
)

// TestMomentIsWhatStood: whatever was decided, lost by a crash and decided again, the
// shares of every version come back, also from files that were opened again.
func TestMomentIsWhatStood(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		a := open(t, dir, archive.Options{})
		names := []string{"cart", "checkout", "search"}
		now, stood := fleet{}, map[uint64]fleet{}
		version := uint64(0)
		var kept []fleet // since the last save, the saved one first
		savedAt := uint64(0)
		for range 60 {
			before, previous := now.clone(), version
			now.mutate(random, names)
			version++
			add(t, a, change(before, now, version, previous, plan.TriggerTick))
			stood[version] = now.clone()
			if random.IntN(3) > 0 {
				savedAt, kept = version, []fleet{now.clone()}
			}
			if random.IntN(10) == 0 && len(kept) > 0 { // a crash: it goes on from what was saved
				saved := kept[0]
				version += 100
				now = saved.clone()
				now.mutate(random, names)
				add(t, a, change(saved, now, version, savedAt, plan.TriggerRestart))
				stood[version] = now.clone()
				if err := a.Close(); err != nil {
					t.Fatal(err)
				}
				a = open(t, dir, archive.Options{})
			}
		}
		for v, want := range stood {
			for _, name := range names {
				got, err := a.Moment(name, v, now.saved(name))
				if err == nil {
					err = want.same(name, &got)
				}
				if err != nil {
					t.Fatalf("seed %d, %s at version %d: %v", seed, name, v, err)
				}
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
