package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/fleet"
)

func demoFrame() fleet.Frame {
	a, b := isobar.MustLocality("us-east/a"), isobar.MustLocality("eu-west/a")
	now := fleet.Summary{
		Requests: 1000, Served: 960, Failed: 40, CrossRegion: 0.25, Mean: 31500 * time.Microsecond, P99: 412 * time.Millisecond,
		Zones: []fleet.ZoneSummary{
			{Locality: a, Demand: 520, Arrived: 504, Load: 1.26, Sent: []float64{300, 100}},
			{Locality: b, Demand: 160, Arrived: 158, Load: 0.395, Sent: []float64{0, 158}},
		},
	}
	return fleet.Frame{
		Admin: "127.0.0.1:18080", Mode: isobar.ModeFull, Phase: "step: us-east/a at 520 requests/s", At: 12 * time.Second, Length: 38 * time.Second,
		Now: now, Overall: now,
	}
}

func TestDemoFrames(t *testing.T) {
	f := demoFrame()
	const line = "Isobar          12s  step: us-east/a at 520 requests/s" +
		"  us-east/a 126%  eu-west/a  40%  mean 32 ms  p99 412 ms  failed 40"
	if got := frameLine(&f); got != line {
		t.Errorf("line:\n%s\nwant:\n%s", got, line)
	}
	other := f
	other.Phase = "recovery"
	if at, of := strings.Index(line, "  us-east/a 126%"), strings.Index(frameLine(&other), "  us-east/a 126%"); at != of {
		t.Errorf("the zones begin in column %d, those of a shorter phase in column %d", at, of)
	}
	const table = `isobar demo   Isobar (mode full)   http://127.0.0.1:18080/ui/
12 of 38 s   step: us-east/a at 520 requests/s

zone       clients send  backends get  load of the backends
us-east/a  520/s         504/s         126%  ████████████████████|█████
eu-west/a  160/s         158/s          40%  ████████············

clients in  are served in  us-east/a  eu-west/a
us-east/a                  75%        25%
eu-west/a                  -          100%

last 2 s   mean 32 ms   p99 412 ms   40 failed   25% cross-region
this run   mean 32 ms   p99 412 ms   40 failed   25% cross-region
`
	if got := frameTable(&f, 80); got != table {
		t.Errorf("table:\n%s\nwant:\n%s", got, table)
	}
}

// TestDemoLiveView drives the model of the live view by its messages.
func TestDemoLiveView(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var m tea.Model = newLiveDemo(cancel)
	if got := m.View().Content; !strings.Contains(got, "starting") {
		t.Errorf("before the first frame: %q", got)
	}
	f := demoFrame()
	m, _ = m.Update(f)
	if got := m.View().Content; !strings.HasPrefix(got, frameTable(&f, 80)) {
		t.Errorf("with a frame: %q", got)
	}
	fillsScreen(t, m)
	f.Mode = isobar.ModeObserve // both modes share the screen
	m, _ = m.Update(f)
	fillsScreen(t, m)
	m, _ = m.Update(tea.KeyPressMsg{Code: 'x', Text: "x"})
	if ctx.Err() != nil {
		t.Error("any key ends it")
	}
	m.Update(tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl})
	if !errors.Is(context.Cause(ctx), errInterrupted) {
		t.Errorf("ctrl+c: %v", context.Cause(ctx))
	}
}

// fillsScreen: in a larger terminal bars are wider, and a chart has the rows that
// the tables leave.
func fillsScreen(t *testing.T, m tea.Model) {
	t.Helper()
	var widths, heights []int
	for _, size := range []tea.WindowSizeMsg{{Width: 80, Height: 24}, {Width: 120, Height: 30}, {Width: 130, Height: 50}, {Width: 200, Height: 60}} {
		m, _ = m.Update(size)
		lines, longest := strings.Split(strings.TrimSuffix(m.View().Content, "\n"), "\n"), 0
		for _, l := range lines {
			if longest = max(longest, utf8.RuneCountInString(l)); longest > size.Width {
				t.Errorf("%d columns of %d: %s", longest, size.Width, l)
			}
		}
		if len(lines) >= size.Height || len(lines) < size.Height*3/4 {
			t.Errorf("%d lines of %d", len(lines), size.Height)
		}
		widths, heights = append(widths, longest), append(heights, len(lines))
	}
	if widths[0] >= widths[1] || widths[1] >= widths[3] || heights[0] >= heights[1] {
		t.Errorf("columns %v, lines %v", widths, heights)
	}
}

// fits tells whether a text can be seen whole in a terminal of 80 columns and
// 24 lines, of which one is the prompt's.
func fits(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) > 23 {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
	for _, l := range lines {
		if n := utf8.RuneCountInString(l); n > 79 {
			t.Errorf("%d columns: %s", n, l)
		}
	}
}

// TestDemoFitsATerminal: the zones of the demo with large numbers everywhere.
func TestDemoFitsATerminal(t *testing.T) {
	s := fleet.DefaultScenario()
	f := fleet.Frame{
		Mode: isobar.ModeObserve, Phase: "step: us-east/a at 520 requests/s", At: 12 * time.Second, Length: 38 * time.Second,
		Now: fleet.Summary{Failed: 1234, CrossRegion: 1, Mean: 1999 * time.Millisecond, P99: 1999 * time.Millisecond},
	}
	f.Overall = f.Now
	for _, z := range s.Zones {
		f.Now.Zones = append(f.Now.Zones, fleet.ZoneSummary{
			Locality: z.Locality, Demand: 1040, Arrived: 1040, Load: 2.5, Sent: []float64{260, 260, 260, 260},
		})
	}
	fits(t, frameTable(&f, 80))
	var m tea.Model = newLiveDemo(nil)
	for _, mode := range []isobar.Mode{isobar.ModeObserve, isobar.ModeFull} {
		for second := range 38 {
			f.Mode, f.At = mode, time.Duration(second+1)*time.Second
			m, _ = m.Update(f)
		}
	}
	fits(t, m.View().Content)

	p := fleet.PhaseOutcome{
		Zone: s.Step.Zone, Seconds: 14, Requests: 15103, MeanMS: 1906, P99MS: 1999, FinalMeanMS: 1906, FinalP99MS: 1999,
		FullestZone: s.Step.Zone, FullestLoad: 1.32, CrossRegion: 0.999, LateMS: 1234,
		Failed: 1051, FailedAtOnce: 480, FailedUnderWay: 640,
		WhyNotSettled: "in the last 3s us-east/a was loaded at 132%, above 90% and 812 of 3000 requests failed (812 ResourceExhausted)",
	}
	h := fleet.HangOutcome{
		Zone: s.Hang.Zone, Seconds: 7, Found: true, FoundSeconds: 5.9, Drained: true, DrainedSeconds: 5.9, Failed: 1234,
		Back: true, BackSeconds: 3.9,
	}
	o := fleet.Outcome{Mode: isobar.ModeObserve, Step: p, Hang: h, Loss: p, Requests: 32517, Failed: 4450, FailedElsewhere: 108}
	v := fleet.Judge([]fleet.Outcome{o, {Mode: isobar.ModeFull, Step: fleet.PhaseOutcome{Zone: p.Zone, Settled: true}, Hang: h, Loss: p}})
	fits(t, verdictText(&v))
}

func TestDemoVerdict(t *testing.T) {
	zone := isobar.MustLocality("us-east/a")
	bad := fleet.PhaseOutcome{
		Zone: zone, Seconds: 14, Requests: 9000, MeanMS: 312.4, P99MS: 801, FinalMeanMS: 400, FinalP99MS: 803,
		FullestZone: zone, FullestLoad: 1.3, Failed: 812, FailedAtOnce: 3, FailedUnderWay: 5,
	}
	good := fleet.PhaseOutcome{
		Zone: zone, Seconds: 14, Requests: 9000, MeanMS: 38, P99MS: 190, FinalMeanMS: 9.94, FinalP99MS: 130,
		FullestZone: zone, FullestLoad: 0.79, CrossRegion: 0.114, Settled: true, SecondsToSettle: 4, LateMS: 600,
	}
	good.SettledBelowLoad = 0.85
	died := good
	died.FailedUnderWay, died.SettledBelowLoad = 7, 0.92
	died.CheckersFound, died.CheckersSeconds = true, 2.31
	hung := fleet.HangOutcome{
		Zone: isobar.MustLocality("eu-west/b"), Seconds: 7.0004, Found: true, FoundSeconds: 2.14, As: isobar.Timeout,
		Drained: true, DrainedSeconds: 2.16, Failed: 171, Back: true, BackSeconds: 1.55,
	}
	lost := fleet.HangOutcome{Zone: hung.Zone, Seconds: 7, Failed: 560}
	v := fleet.Judge([]fleet.Outcome{
		{Mode: isobar.ModeObserve, Step: bad, Hang: lost, Loss: bad, Requests: 20000, Failed: 2202, FailedElsewhere: 2},
		{Mode: isobar.ModeFull, Step: good, Hang: hung, Loss: died, Requests: 20000, Failed: 178},
	})
	const want = `                        plain failover              Isobar
Load step in us-east/a
  mean / p99 latency    312 / 801 ms                38 / 190 ms
    in the last third   400 / 803 ms                9.9 / 130 ms
  fullest/cross-region  130% (us-east/a) / 0.0%     79% (us-east/a) / 11.4%
  failed requests       812 of 9000                 0 of 9000
  settled               not within 14 s             after 4 s
Hang in eu-west/b       missed                      found 2.1 s, back 1.6 s
  requests lost to it   560, never drained          171, none after 2.2 s
Loss of us-east/a
  mean / p99 latency    312 / 801 ms                38 / 190 ms
    in the last third   400 / 803 ms                9.9 / 130 ms
  fullest/cross-region  130% (us-east/a) / 0.0%     79% (us-east/a) / 11.4%
  failed as it died     5 under way, 3 in 2 s       7 under way, 0 in 2 s
  failed after that     812 of 9000                 0 of 9000
  checkers / settled    no / not within 14 s        in 2.3 s / after 4 s
All that failed         2202 of 20000, 2 elsewhere  178 of 20000

Busy machine: clients sent up to 600 ms late. The figures are unreliable.
Settled: no request failed, no zone was above 85% (after the loss: 92%).
Isobar settled both times and served all that capacity, hang and loss allowed.
`
	if got := verdictText(&v); got != want {
		t.Errorf("verdict:\n%s\nwant:\n%s", got, want)
	}
}

// smallDemo is a quarter of the demo: the race detector makes requests expensive.
func smallDemo() fleet.Scenario {
	s := fleet.DefaultScenario()
	s.Slot = 250 * time.Millisecond
	s.ServiceTime *= 4
	s.Step.Rate /= 4
	for i := range s.Zones {
		s.Zones[i].Rate /= 4
	}
	return s
}

// TestDemoCommand runs the whole demo with phases too short to settle in, and a
// hang that may be too short to be found: both
// modes are played with the real server, progress and verdict come out where
// they should, and the error says what the verdict says.
func TestDemoCommand(t *testing.T) {
	t.Parallel()
	s := smallDemo()
	s.Deadline = time.Second
	s.Hang.After, s.Hang.For = 0, 10*s.Slot
	s.WarmUp, s.OnStep, s.Recover, s.OnLoss = 0, 3*s.Slot, 14*s.Slot, 3*s.Slot
	var stdout, stderr bytes.Buffer
	err := runDemo(t.Context(), demoFlags{json: true}, s, fleet.ServeIsobar, &stdout, &stderr)
	var v fleet.Verdict
	if parsed := json.Unmarshal(stdout.Bytes(), &v); parsed != nil {
		t.Fatalf("%v in %q: %v", parsed, stdout.String(), err)
	}
	if v.OK != (err == nil) || (err != nil && !errors.Is(err, errDemo)) {
		t.Errorf("verdict %v, error %v", v.OK, err)
	}
	if len(v.Outcomes) != 2 || v.Outcomes[0].Mode != isobar.ModeObserve || v.Outcomes[1].Mode != isobar.ModeFull {
		t.Fatalf("outcomes %+v", v.Outcomes)
	}
	for _, o := range v.Outcomes {
		if o.Step.Requests == 0 || o.Loss.Requests == 0 || o.Step.MeanMS < 15 {
			t.Errorf("mode %s: nothing was sent: %+v", o.Mode, o)
		}
		if o.Hang.Zone != s.Hang.Zone || o.Hang.Seconds < 0.9*s.Hang.For.Seconds() || o.Hang.Failed == 0 {
			t.Errorf("mode %s: nothing hung: %+v", o.Mode, o.Hang)
		}
	}
	if lines := strings.Count(stderr.String(), "\n"); lines != 43 {
		t.Errorf("%d lines of progress, want 43:\n%s", lines, stderr.String())
	}
	if told := strings.Count(stderr.String(), "the console: http://127.0.0.1:"); told != 2 {
		t.Errorf("the address of the console stands there %d times, want one for each run", told)
	}
}

// TestDemoKeep leaves the fleet running until it is interrupted.
func TestDemoKeep(t *testing.T) {
	t.Parallel()
	s := smallDemo()
	s.Hang.For = 0
	s.WarmUp, s.OnStep, s.Recover, s.OnLoss = 0, 3*s.Slot, 0, 3*s.Slot
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := runDemo(ctx, demoFlags{keep: true}, s, fleet.ServeIsobar, w, io.Discard)
		done <- errors.Join(err, w.Close())
	}()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), "Admin API: ")
		if !ok {
			continue
		}
		url, _, _ := strings.Cut(rest, " ")
		resp, err := http.Get(url + "/v1/plan")
		if err != nil {
			t.Error(err)
		} else if _ = resp.Body.Close(); resp.StatusCode != http.StatusOK {
			t.Errorf("GET %s/v1/plan: %s", url, resp.Status)
		}
		cancel()
	}
	if err := <-done; err != nil && !errors.Is(err, errDemo) {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestDemoOfReplicas kills the leader of three real servers during the load step: another
// one takes over, and no request fails.
func TestDemoOfReplicas(t *testing.T) {
	t.Parallel()
	program, err := os.Executable() // this test binary runs as isobar; see TestMain
	if err != nil {
		t.Fatal(err)
	}
	s := fleet.ReplicaScenario()
	s.Slot = 500 * time.Millisecond
	s.Hang.For = 0
	s.Deadline, s.Step.Rate = 20*time.Second, 80 // on a busy machine, too
	for i := range s.Zones {
		s.Zones[i].Rate = 40
	}
	s.WarmUp, s.KillLeader, s.OnStep, s.Recover, s.OnLoss = 0, time.Second, 13*time.Second, 0, 3*s.Slot
	run, err := fleet.Start(t.Context(), s, isobar.ModeFull, fleet.ServeReplicas(fleet.ReplicaOptions{Program: program, Count: 3}))
	if err != nil {
		t.Fatal(err)
	}
	played := run.Play(t.Context(), nil)
	run.StopLoad()
	o := run.Outcome()
	if err := errors.Join(played, run.Close()); err != nil {
		t.Fatal(err)
	}
	taken := o.Takeover
	if taken == nil || taken.Leader == "" || taken.Successor == "" || taken.Successor == taken.Leader || taken.Requests == 0 {
		t.Fatalf("the takeover is %+v", taken)
	}
	if taken.Failed > 0 || taken.Next < taken.Version+900_000 {
		t.Errorf("the takeover is %+v; causes: %v", taken, o.Causes)
	}
	v := fleet.Judge([]fleet.Outcome{{Mode: isobar.ModeFull, Takeover: &fleet.TakeoverOutcome{Leader: "a", Successor: "b", Failed: 3}}})
	text := verdictText(&v)
	for _, want := range []string{"Kill of the leader", "by b", "3 of 0", "3 requests failed within 10s after a, which led, was killed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the verdict lacks %q:\n%s", want, text)
		}
	}
}
