package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/fleet"
	"github.com/isobar-xds/isobar/internal/testhelp"
)

// TestTutorial goes through the tutorial: its fleet, on other ports, with real
// backends and a real client; then the commands that ask the server, as the text
// has them, in its order. The text and this test have to say the same.
func TestTutorial(t *testing.T) {
	p, addresses := tutorialFleet(t)
	p.start()
	p.await("plan", func(v admin.PlanView) bool { return v.Version != "" })
	rate := tutorialLoad(t, p)
	served := func(least, share float64) func(admin.PlanView) bool {
		return func(v admin.PlanView) bool {
			s := v.Services[0]
			return len(s.Sources) == 1 && s.Sources[0].Demand > least && published(s, "us-east/a") > share
		}
	}
	steps := []struct {
		command string
		rate    int64 // what the client sends, from here on
		when    func(admin.PlanView) bool
		fails   string // what the error says; empty = it succeeds
		prints  string
	}{
		{command: "explain checkout --from us-east/b", rate: 20, when: served(15, 0.02), prints: `go [89]\d% to us-east/b`},
		{command: "explain checkout --from us-east/b", rate: 120, when: served(100, 0.4), prints: `go [45]\d% to us-east/b, [45]\d% to us-east/a`},
		{command: "health set checkout 127.0.0.1:50051 draining", fails: "the remaining capacity could not carry the traffic"},
		{command: "health set --force checkout 127.0.0.1:50051 draining", prints: "draining by operator; in plan"},
		{
			command: "explain checkout --from us-east/b", prints: `overflow +demand exceeds the ceilings`,
			when: func(v admin.PlanView) bool { return v.Services[0].CeilingScale > 1 },
		},
		{command: "health set checkout 127.0.0.1:50051 clear", prints: "in plan"},
	}
	asked := regexp.MustCompile(`^    \./isobar ((?:explain|health) .*)$`)
	var told []string
	for line := range strings.Lines(documents(t)[filepath.Join("..", "..", "docs", "tutorial", "first-balanced-fleet.md")]) {
		if m := asked.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil {
			told = append(told, m[1])
		}
	}
	for _, s := range steps {
		if s.rate > 0 {
			rate.Store(s.rate)
		}
		if s.when != nil {
			p.await(s.command, s.when)
		}
		if len(told) == 0 || told[0] != s.command {
			t.Fatalf("the next command of the text is %q, of this test %q", told, s.command)
		}
		told = told[1:]
		args, prints := strings.Fields(addresses.Replace(s.command)), regexp.MustCompile(s.prints)
		out, err := p.command(args)
		if args[0] == "explain" { // demand is random: the next plan may say it
			for began := time.Now(); err == nil && !prints.MatchString(out) && time.Since(began) < time.Minute; out, err = p.command(args) {
				time.Sleep(100 * time.Millisecond) //nolint:forbidigo // a real process: bounded polling
			}
		}
		switch {
		case s.fails == "" && err != nil, s.fails != "" && (err == nil || !strings.Contains(err.Error(), s.fails)):
			t.Errorf("%s: %v, want %q", s.command, err, s.fails)
		case !prints.MatchString(out):
			t.Errorf("%s prints no %q:\n%s", s.command, s.prints, out)
		}
	}
	if len(told) > 0 {
		t.Errorf("the text has more commands than this test: %q", told)
	}
}

// tutorialFleet starts the backends and writes examples/first-fleet.yaml with
// their addresses. The replacer puts them into commands, too.
func tutorialFleet(t *testing.T) (*process, *strings.Replacer) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "examples", "first-fleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var replace []string
	places := map[string]isobar.Locality{}
	for i, zone := range []string{"us-east/a", "us-east/b"} {
		b, err := fleet.StartBackend(fleet.BackendOptions{
			Locality: isobar.MustLocality(zone), Concurrency: 4, ServiceTime: 40 * time.Millisecond, MaxQueue: 1000, Seed: uint64(i),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Kill)
		places[b.Address()] = b.Locality()
		replace = append(replace, fmt.Sprintf("127.0.0.1:%d", 50051+i), b.Address())
	}
	addresses := strings.NewReplacer(replace...)
	dir := t.TempDir()
	p := &process{t: t, file: filepath.Join(dir, "isobar.yaml"), xds: testhelp.FreePort(t), api: testhelp.FreePort(t), places: places}
	text := strings.Replace(addresses.Replace(string(data)), "admin: {", fmt.Sprintf("xds: {listen: %q}\nstate_dir: %q\nadmin: {listen: %q, ", p.xds, filepath.Join(dir, "state"), p.api), 1)
	if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p, addresses
}

// tutorialLoad sends requests from us-east/b, as many as the value says, until
// the test ends.
func tutorialLoad(t *testing.T, p *process) *atomic.Int64 {
	t.Helper()
	client := p.clients([]isobar.Locality{isobar.MustLocality("us-east/b")}, 1)[0]
	rate := new(atomic.Int64)
	gen := fleet.Poisson{
		Rate: func(time.Time) float64 { return float64(rate.Load()) },
		Send: func(ctx context.Context, _ time.Time) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			_, _ = client.Call(ctx) // requests to an overloaded zone time out
		},
		Refuse: func(time.Time, string) {},
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { gen.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return rate
}

// command runs a command against the process's admin API, which may fail.
func (p *process) command(args []string) (string, error) {
	var out, errs strings.Builder
	err := run(p.t.Context(), append(slices.Clone(args), "--admin", p.api), &out, &errs)
	return out.String(), err
}
