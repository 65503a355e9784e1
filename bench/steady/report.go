package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/isobar-xds/isobar/internal/loadgen"
)

// What is wanted on two cores.
const (
	wantCores    = 0.7
	wantRSS      = 1536 << 20 // bytes
	wantFirstEDS = 5000.0     // p99 when all come back at once, ms
	// flat is the growth from the first third of the time to the last of what the
	// lower quartile of garbage collections leaves, as a share of it, that is taken
	// for none. By chance the two differ by 4% one time in a hundred and by 6% one time
	// in a thousand, where a third has 45 collections. It does not grow with the time,
	// so that an hour looks six times as closely. Resident memory says less: a
	// collection that falls into a tick finds more in use, and what it lets the heap
	// grow to stays resident for minutes.
	flat = 0.06
)

var errMissed = errors.New("a result is not as required")

// report prints what was measured, as a benchmark and in words, and holds it
// against what is wanted.
func report(w io.Writer, o *options, m *meter, f *fleet, clients *loadgen.Result, checkers float64) error {
	if m.err != nil {
		return m.err
	}
	if len(m.samples) < 2 {
		return errors.New("interrupted before anything was measured")
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	used, mean, most := cores(first, last), 0.0, int64(0)
	for _, s := range m.samples {
		mean += float64(s.RSS) / float64(len(m.samples))
		most = max(most, s.RSS)
	}
	live, lastLive := quarter(m.live(0)), quarter(m.live(2))
	slope, growth := m.slope(), float64(lastLive-live)/(last.At.Sub(first.At).Hours()*2/3)
	gc := m.totals[1].collections - m.totals[0].collections
	pause := m.totals[1].pauses - m.totals[0].pauses
	ticks := m.totals[1].ticks - m.totals[0].ticks
	tick := (m.totals[1].tickSeconds - m.totals[0].tickSeconds) / max(1, ticks)
	back := clients.Reconnect
	if back == nil {
		return errors.New("interrupted before the clients came back")
	}
	seconds := last.At.Sub(first.At).Seconds()
	lines := []string{
		fmt.Sprintf("BenchmarkSteady/clients=%d/services=%d/subscribed=%d/checkers=%.0f 1 %.0f ns/op", o.clients, o.services, o.subscribe, checkers, seconds*1e9) +
			fmt.Sprintf(" %.3f cores %d maxRSS-B %.0f RSS-B/h %.0f live-B/h %.4f s/tick %.1f p99-spread-ms",
				used, m.most, slope*3600, growth, tick, clients.Spread.P99MS),
		fmt.Sprintf("BenchmarkReconnect/clients=%d/services=%d/subscribed=%d 1 %.0f ns/op %.1f p50-ms %.1f p99-ms",
			o.clients, o.services, o.subscribe, back.MaxMS*1e6, back.P50MS, back.P99MS),
		"",
		fmt.Sprintf("processor     %.2f cores over %.0f s (%.1f s)", used, seconds, (last.CPU - first.CPU).Seconds()),
		fmt.Sprintf("memory        at most %d MiB, with start and reconnect %d MiB; mean %.0f MiB, %+.1f MiB/h",
			most>>20, m.most>>20, mean/(1<<20), slope*3600/(1<<20)),
		fmt.Sprintf("in use        after a quarter of the collections at most %d MiB in the first third, %d MiB in the last, %+.1f%%, %+.1f MiB/h",
			live>>20, lastLive>>20, 100*float64(lastLive-live)/max(1, float64(live)), growth/(1<<20)),
		fmt.Sprintf("collections   %.0f, pauses of %.2f ms on average", gc, 1000*pause/max(1, gc)),
		fmt.Sprintf("ticks         %.0f, %.0f ms each", ticks, 1000*tick),
		fmt.Sprintf("changes       %d over the admin API, %d failed", f.changes.Load(), f.changesFailed.Load()),
		fmt.Sprintf("clients       %d, %d services each: %d pushes, %d reports, %d NACKs",
			clients.Clients, clients.Subscribed, clients.Pushes, clients.Reports, clients.NACKs),
		fmt.Sprintf("checkers      %.0f", checkers),
		fmt.Sprintf("first EDS     %s, %d silent", inWords(&clients.FirstEDS.Latency), clients.FirstEDS.Silent),
		fmt.Sprintf("spread        %s, of %d versions", inWords(&clients.Spread), clients.Spread.Count),
		fmt.Sprintf("reconnect     %s, %d silent", inWords(&back.Latency), back.Silent),
	}
	if o.replicas > 1 {
		n := float64(o.replicas - 1)
		lines = append(lines,
			fmt.Sprintf("group         %d replicas, clients at %s; the processor above is the leader's, each follower has %.2f cores",
				o.replicas, o.at, (m.totals[1].followers-m.totals[0].followers).Seconds()/seconds/n),
			fmt.Sprintf("between       %.1f KB/s of plans to each follower, %.1f KB/s of reports from each follower",
				(m.totals[1].plans-m.totals[0].plans)/1000/seconds/n, (m.totals[1].observed-m.totals[0].observed)/1000/seconds/n))
	}
	for _, e := range clients.Errors {
		lines = append(lines, fmt.Sprintf("errors        %d %s: %s", e.Count, e.Status, e.Last))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return errors.Join(
		missed(used > wantCores, "%.2f cores, want at most %.1f", used, wantCores),
		missed(m.most > wantRSS, "%d MiB, want at most %d", m.most>>20, wantRSS>>20),
		missed(live == 0 && seconds >= 300, "the server reported no garbage collections in a third of the time"),
		missed(float64(lastLive-live) > flat*float64(live) && seconds >= 300, "the heap grows by %.0f MiB/h", growth/(1<<20)),
		missed(back.P99MS > wantFirstEDS, "clients that come back at once wait %.0f ms, want p99 at most %.0f", back.P99MS, wantFirstEDS),
		missed(!clients.OK(), "not all clients were served, or some refused something"),
		missed(f.changesFailed.Load() > 0, "%d changes failed", f.changesFailed.Load()),
		missed(checkers < float64(o.checkers), "%.0f of %d checkers", checkers, o.checkers),
	)
}

// quarter returns the lower quartile of sorted values, 0 where there are none.
func quarter(sorted []int64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[len(sorted)/4]
}

func inWords(l *loadgen.Latency) string {
	return fmt.Sprintf("p50 %.1f ms, p99 %.1f ms, max %.1f ms", l.P50MS, l.P99MS, l.MaxMS)
}

func missed(is bool, format string, args ...any) error {
	if !is {
		return nil
	}
	return fmt.Errorf("%w: %s", errMissed, fmt.Sprintf(format, args...))
}
