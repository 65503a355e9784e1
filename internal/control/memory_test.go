package control_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/control"
	"github.com/isobar-xds/isobar/internal/load"
	"github.com/isobar-xds/isobar/internal/testhelp"
	"github.com/isobar-xds/isobar/internal/testhelp/bubble"
)

// crowd are clients of one address that report once a second.
type crowd struct {
	*parts

	clients int
	opened  time.Time
}

func (c *crowd) Collect(now time.Time) []load.StreamWindow {
	out := make([]load.StreamWindow, c.clients)
	for i := range out {
		out[i] = load.StreamWindow{
			Stream: load.StreamID(i + 1), Node: load.Node{ID: "client", Locality: isobar.MustLocality("east/a")}, Account: "192.0.2.1", Opened: c.opened,
			Reports: []load.Report{{Arrived: now, Services: []load.ServiceReport{{
				Service: "shop", Interval: time.Second, Localities: []load.LocalityReport{{Issued: 10, Succeeded: 10, HasIssued: true}},
			}}}},
		}
	}
	return out
}

// TestLoadWithoutMemory asserts that metrics tell how much memory the load of clients takes, and how many of
// their windows are not kept, and that the log tells it once a minute.
func TestLoadWithoutMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const memory, clients, seconds = 160 << 10, 40, 150
		p, log, registry := newParts(), &testhelp.Log{}, prometheus.NewRegistry()
		p.topology.Services = []isobar.Service{web("shop", 1)}
		p.topology.Normalize()
		l, stop := start(t, p, func(o *control.Options) {
			o.Reports, o.LoadMemory = &crowd{parts: p, clients: clients, opened: time.Now()}, memory
			o.Registerer, o.Log = registry, slog.New(slog.NewTextHandler(log, nil))
		})
		pass(seconds*time.Second + time.Second/2)
		m := l.LoadMemory()
		if m.Used < memory/10 || m.Used > memory || m.Most != memory || m.MostOfOne != memory/8 {
			t.Errorf("%+v, want at most %d bytes", m, memory)
		}
		if got := testhelp.Series(t, registry, "isobar_load_memory_bytes")[""]; got != float64(m.Used) {
			t.Errorf("the metric tells %.0f bytes, want %d", got, m.Used)
		}
		got := testhelp.Series(t, registry, "isobar_load_refused_windows_total")[""]
		if got != float64(m.Refused) || got < clients/2*seconds || got > clients*(seconds+1) {
			t.Errorf("%.0f windows are refused, want %d, those of most clients each second", got, m.Refused)
		}
		if n := strings.Count(log.String(), "load of clients was not kept"); n != 3 {
			t.Errorf("the log tells it %d times, want 3:\n%.2000s", n, log.String())
		}
		stop()
	})
}
