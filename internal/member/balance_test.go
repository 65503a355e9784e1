package member

import (
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
)

// TestClosingForBalance asserts when a replica closes connections, and how many a second.
func TestClosingForBalance(t *testing.T) {
	for _, c := range []struct {
		name   string
		own    int
		others []int
		began  bool
		want   int
	}{
		{"alone", 5000, nil, false, 0},
		{"its share", 1000, []int{1000, 1000}, false, 0},
		{"a little more than its share", 1200, []int{900, 900}, false, 0},
		{"the same, once it closes some", 1200, []int{900, 900}, true, 3},
		{"half of all, one has none", 1500, []int{1500, 0}, false, 8},
		{"all", 9000, []int{0, 0}, false, 20},
		{"few more", 10, []int{0, 0}, false, 0},
		{"at its share again", 1040, []int{980, 980}, true, 0},
		{"less than its share", 100, []int{3000, 3000}, true, 0},
	} {
		if got := closing(c.own, c.others, c.began); got != c.want {
			t.Errorf("%s: closes %d, want %d", c.name, got, c.want)
		}
	}
}

// TestReturningClients asserts that the connection of one client is closed at most twice in
// ten minutes.
func TestReturningClients(t *testing.T) {
	var m returning
	now := time.Unix(1e9, 0)
	c := balancedClient{"web-1", "web", isobar.MustLocality("us/a")}
	for i, want := range []bool{true, true, false, false} {
		if got := m.may(c, now.Add(time.Duration(i)*time.Second)); got != want {
			t.Errorf("time %d: %v, want %v", i+1, got, want)
		}
	}
	if !m.may(balancedClient{"web-2", "web", c.locality}, now) {
		t.Error("another client counts as the same")
	}
	later := now.Add(balanceMemory + 2*time.Second)
	m.forget(later)
	if len(m.clients) > 0 || !m.may(c, later) {
		t.Errorf("after ten minutes %v are remembered", m.clients)
	}
}
