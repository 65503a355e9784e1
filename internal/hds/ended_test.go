package hds_test

import (
	"slices"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/hds"
)

// A checker that ends soon after it was told of something new, before it said a
// word on it, may have ended because of that; any other end means nothing.
func TestEndedOnWhatIsNew(t *testing.T) {
	for name, tc := range map[string]struct {
		then func(h *harness, c *client)
		want []string
	}{
		"told first":          {func(*harness, *client) {}, []string{"cart", "pay"}},
		"has reported":        {func(_ *harness, c *client) { c.report(&response{}) }, nil},
		"much later":          {func(*harness, *client) { pass(11 * time.Second) }, nil},
		"the server ended it": {func(h *harness, _ *client) { h.srv.Stop(); pass(0) }, nil},
		"told of one more": {func(h *harness, c *client) {
			c.report(&response{})
			h.designate(service("cart", 1), service("new", 3), service("pay", 2))
			c.recv()
		}, []string{"new"}},
		"told of a change and one more": {func(h *harness, c *client) {
			c.report(&response{})
			other := tcpCheck()
			other.Interval *= 2
			h.designate(service("cart", 1, other), service("pay", 2))
			c.recv()
			pass(4 * time.Second)
			h.designate(service("cart", 1, other), service("new", 3), service("pay", 2))
			c.recv()
		}, []string{"cart", "new"}},
		"one is gone": {func(h *harness, c *client) {
			c.report(&response{})
			h.designate(service("pay", 2))
			c.recv()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, hds.Options{}, func(h *harness) {
				c := h.enter("probe-1", "r/a")
				h.designate(service("cart", 1), service("pay", 2))
				c.recv()
				tc.then(h, c)
				c.leave()
				got := h.srv.Ended()
				switch {
				case len(tc.want) == 0 && len(got) != 0:
					t.Errorf("%+v, want nothing", got)
				case len(tc.want) > 0 && (len(got) != 1 || got[0].Checker != "probe-1" || !slices.Equal(got[0].Services, tc.want)):
					t.Errorf("%+v, want %v by probe-1", got, tc.want)
				}
				if again := h.srv.Ended(); len(again) > 0 {
					t.Errorf("%+v once more", again)
				}
			})
		})
	}
}

// designate has probe-1 probe services.
func (h *harness) designate(services ...isobar.Service) {
	top := topology(services...)
	h.srv.Designate(top, all(top, "probe-1"))
}
