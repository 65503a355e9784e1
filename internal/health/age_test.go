package health_test

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/health"
)

// TestServicesAge: verdicts that nobody confirms age together, a silent zone
// of checkers ages nothing, and what was never probed has no age.
func TestServicesAge(t *testing.T) {
	w := one(t)
	if a := w.book.Ages(); len(a) > 0 && a[0].Checked {
		t.Errorf("before any verdict: %+v", a)
	}
	w.run(10 * time.Second)
	want := health.VerdictAge{Service: "web", Checked: true}
	if a := w.book.Ages(); len(a) != 1 || a[0] != want {
		t.Errorf("fresh: %+v", a)
	}
	for i := range w.checkers {
		w.silent[w.checkers[i].ID] = true
	}
	w.run(10 * time.Minute)
	a := w.book.Ages()[0]
	if a.Most < 9*time.Minute || a.Most > 10*time.Minute || a.Some < a.Most {
		t.Errorf("ten minutes without a vote: %+v", a)
	}
	if w.status("web", first) != isobar.Healthy {
		t.Error("what is old is read as something new")
	}
	clear(w.silent)
	w.run(time.Minute)
	if a := w.book.Ages(); a[0] != want {
		t.Errorf("after they came back: %+v", a)
	}
}
