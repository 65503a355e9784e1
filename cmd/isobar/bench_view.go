package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/internal/loadgen"
)

// benchLineEvery is how often a line is printed where there is no terminal.
const benchLineEvery = 5 * time.Second

// benchProgress shows a bar on a terminal, elsewhere a line now and then.
type benchProgress struct {
	w     io.Writer
	bar   *progressBar
	phase loadgen.Phase
	next  time.Time
}

func newBenchProgress(w io.Writer) *benchProgress {
	return &benchProgress{w: w, bar: newProgressBar(w, 0)}
}

func (b *benchProgress) progress(p loadgen.Progress) {
	text := fmt.Sprintf("%s: %d of %d clients served, %d pushes, %d reports, %d errors", p.Phase, p.Answered, p.Clients, p.Pushes, p.Reports, p.Errors)
	if b.bar.w != nil {
		b.bar.line(text, p.Done)
		return
	}
	now := time.Now()
	if p.Phase == b.phase && now.Before(b.next) {
		return
	}
	b.phase, b.next = p.Phase, now.Add(benchLineEvery)
	_, _ = fmt.Fprintln(b.w, text) // nobody to tell
}

func (b *benchProgress) end() { b.bar.clear() }

// benchText is what is printed of a result.
func benchText(r *loadgen.Result) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("clients", "%d on %d connections, for %.0f s; each has %d of %d services", r.Clients, r.Connections, r.Seconds, r.Subscribed, r.Services)
	line("streams", "%d for discovery", r.Streams)
	line("localities", "%s", shortList(r.Localities))
	line("first EDS", "%s", arrivalText(&r.FirstEDS))
	if r.Reconnect != nil {
		line("reconnect", "%s", arrivalText(r.Reconnect))
	}
	if r.NoReconnect {
		line("reconnect", "cut short before it")
	}
	line("pushes", "%d, %.1f MB", r.Pushes, float64(r.PushBytes)/1e6)
	if r.Spread.Count > 0 {
		line("spread", "%s from the first to the last client, of %d versions", latencyText(&r.Spread), r.Spread.Count)
	}
	line("NACKs", "%d", r.NACKs)
	if r.Refusal != "" {
		line("", "%s", printable(r.Refusal))
	}
	if r.ReportInterval > 0 {
		line("reports", "%d, every %g s", r.Reports, r.ReportInterval)
	} else {
		line("reports", "%d: the server never asked for any", r.Reports)
	}
	if len(r.Errors) == 0 {
		line("errors", "0")
	}
	for _, e := range r.Errors {
		line("errors", "%d %s: %s", e.Count, e.Status, orDash(e.Last))
	}
	return b.String()
}

func arrivalText(a *loadgen.Arrival) string {
	text := "nobody got one"
	if a.Count > 0 {
		text = latencyText(&a.Latency)
	}
	switch {
	case a.Silent > 0:
		text += fmt.Sprintf("; %d CLIENTS GOT NONE", a.Silent)
	default:
		text += "; none silent"
	}
	if a.NotBegun > 0 {
		text += fmt.Sprintf("; %d had yet to connect when it was cut short", a.NotBegun)
	}
	if a.Incomplete > 0 {
		text += fmt.Sprintf("; %d LACK A SERVICE", a.Incomplete)
	}
	return text
}

func latencyText(l *loadgen.Latency) string {
	return fmt.Sprintf("p50 %.4g ms, p99 %.4g ms, max %.4g ms", l.P50MS, l.P99MS, l.MaxMS)
}

// maxListed bounds what a line lists.
const maxListed = 8

func shortList(list []string) string {
	shown := make([]string, 0, maxListed)
	for _, s := range list[:min(maxListed, len(list))] {
		shown = append(shown, orDash(s))
	}
	text := strings.Join(shown, " ")
	if more := len(list) - len(shown); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
