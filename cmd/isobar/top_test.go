package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isobar-xds/isobar"
	"github.com/isobar-xds/isobar/internal/admin"
	"github.com/isobar-xds/isobar/internal/assign"
	"github.com/isobar-xds/isobar/internal/plan"
	"github.com/isobar-xds/isobar/solver"
)

// busyPlan is a control loop that published a plan of three services.
type busyPlan struct{ fixedPlan }

func (busyPlan) Ticks() (uint64, time.Duration) { return 1234, 3500 * time.Microsecond }

func (busyPlan) Current() *plan.Plan {
	near, far := isobar.MustLocality("us-east/b"), isobar.MustLocality("us-east/c")
	service := func(name string, mode isobar.Mode, demand float64, shares ...float64) *plan.Service {
		spec := &isobar.Service{Name: name, Mode: mode}
		r := &assign.Result{Service: name, Load: []float64{demand * shares[0], demand * shares[1]}}
		for _, l := range []isobar.Locality{near, far} {
			endpoint := isobar.WeightedEndpoint{Address: "10.0.0.1:80", Weight: 1, Health: isobar.Healthy}
			spec.Localities = append(spec.Localities, isobar.ServiceLocality{
				Locality: l, MaxRate: 1000, Endpoints: []isobar.Endpoint{{Address: endpoint.Address}},
			})
			r.Sites = append(r.Sites, assign.Site{
				Group: &isobar.EndpointGroup{Locality: l, Endpoints: []isobar.WeightedEndpoint{endpoint}}, Capacity: 1000, Ceiling: 0.8, Scale: 1,
			})
		}
		r.Sources = []assign.SourceResult{{Source: near, Demand: demand, Shares: shares, Want: []float64{shares[0] - 0.1, shares[1] + 0.1}}}
		return &plan.Service{Spec: spec, Sites: r.Sites, Coverage: 1, Result: r, Solution: &solver.ServiceSolution{CeilingScale: 1}, PlanGap: 0.002}
	}
	cart, checkout, idle := service("cart", isobar.ModeFull, 500, 0.9, 0.1), service("checkout", isobar.ModeBounded, 1200, 0.75, 0.25),
		service("idle", isobar.ModeObserve, 0, 1, 0)
	checkout.Result.Drop, checkout.Hold = 0.02, "coverage 60%"
	idle.Paused, idle.Hold = &plan.Pause{Service: "idle", Who: "ann", Since: made}, "paused by ann"
	return &plan.Plan{Version: 4711, Made: made, Topology: &isobar.Topology{}, Services: []*plan.Service{cart, checkout, idle}}
}

func busyAdmin(t *testing.T) string {
	t.Helper()
	s, err := admin.New(admin.Options{
		Objects: noObjects{}, Parser: noParser{}, Planner: busyPlan{}, Fleet: fixedFleet{},
		Metrics: admin.Metrics{Gatherer: prometheus.NewRegistry()},
	})
	if err != nil {
		t.Fatal(err)
	}
	address, stop, err := startAdmin(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return address
}

// TestTopScripts runs isobar top where there is no terminal.
func TestTopScripts(t *testing.T) {
	sayHowToUpdate(t)
	address := busyAdmin(t)
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script-top",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "", // to be read as a diff before it is committed
		Setup: func(env *testscript.Env) error {
			env.Setenv("ADMIN", address)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"isobar": inProcess},
	})
}

func busyOverview(t *testing.T) admin.Overview {
	t.Helper()
	remote, err := admin.NewRemote(busyAdmin(t))
	if err != nil {
		t.Fatal(err)
	}
	o, err := remote.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// order is that of the services in a text.
func order(text string) string {
	var names []string
	for line := range strings.Lines(plainText(text)) {
		if name, _, _ := strings.Cut(line, " "); slices.Contains([]string{"cart", "checkout", "idle"}, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// TestTopLiveView drives the model of the live view by its messages.
func TestTopLiveView(t *testing.T) {
	var m tea.Model = &topView{
		interval: time.Second, sort: byUtilization, width: defaultWidth, height: defaultHeight,
		ask: func() tea.Msg { return topAnswer{} },
	}
	show := func() string { return m.View().Content }
	send := func(msgs ...tea.Msg) (cmd tea.Cmd) {
		for _, msg := range msgs {
			m, cmd = m.Update(msg)
		}
		return cmd
	}
	press := func(keys string) (cmd tea.Cmd) {
		for _, k := range keys {
			cmd = send(tea.KeyPressMsg{Code: k, Text: string(k)})
		}
		return cmd
	}
	if got := show(); !strings.Contains(got, "asking") {
		t.Errorf("before the first answer: %q", got)
	}
	if send(topAnswer{overview: busyOverview(t), at: made}) == nil {
		t.Error("the next answer is not asked for")
	}
	for _, want := range []string{"plan 4711", "tick 1234, took 3.5 ms", "clients 4: 2 in sync, 1 behind, 1 refusing", "! critical: checkout: clients drop 2.0%", "90.0%", "held: coverage 60%", "paused"} {
		if !strings.Contains(show(), want) {
			t.Errorf("no %q in\n%s", want, show())
		}
	}
	for _, tt := range []struct{ key, want string }{
		{"n", "cart checkout idle"}, {"u", "checkout cart idle"}, {"s", "checkout cart idle"}, {"d", "checkout cart idle"}, {"x", "checkout cart idle"},
	} {
		if press(tt.key); order(show()) != tt.want {
			t.Errorf("sorted by %s: %s", tt.key, order(show()))
		}
	}
	// Every line fits, and no more lines are shown than there is room for; what
	// does not fit can be scrolled to.
	for _, size := range []tea.WindowSizeMsg{{Width: 200, Height: 50}, {Width: 80, Height: 24}, {Width: 40, Height: 9}, {Width: 5, Height: 1}} {
		send(size)
		lines := strings.Split(show(), "\n")
		if len(lines) > max(size.Height, 9) {
			t.Errorf("%d lines of %d:\n%s", len(lines), size.Height, show())
		}
		for _, line := range lines {
			if n := len([]rune(plainText(line))); n > size.Width {
				t.Errorf("%d columns of %d: %q", n, size.Width, line)
			}
		}
	}
	press("nG")
	if order(show()) != "idle" && !strings.Contains(show(), "idle") {
		t.Errorf("at the end:\n%s", show())
	}
	press("g")
	send(tea.WindowSizeMsg{Width: 80, Height: 24}, topAnswer{err: errors.New("connection refused")})
	if got := show(); !strings.Contains(got, "no answer since") || !strings.Contains(got, "connection refused") || order(got) != "cart checkout idle" {
		t.Errorf("without an answer:\n%s", got)
	}
	detail(t, &m)
	if cmd := press("q"); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not quit")
	}
}

// detail plays the keys of the live view that lead away from the list and back.
func detail(t *testing.T, m *tea.Model) {
	t.Helper()
	remote, err := admin.NewRemote(busyAdmin(t))
	if err != nil {
		t.Fatal(err)
	}
	(*m).(*topView).askOne = func(service string) tea.Msg {
		view, err := remote.Plan(t.Context(), service)
		return topDetail{service: service, view: view, err: err}
	}
	press := func(k tea.KeyPressMsg) string {
		t.Helper()
		next, cmd := (*m).Update(k)
		if *m = next; cmd != nil {
			*m, _ = (*m).Update(cmd())
		}
		return plainText((*m).View().Content)
	}
	key := func(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }
	send := func(msg tea.Msg) { *m, _ = (*m).Update(msg) }
	send(tea.WindowSizeMsg{Width: 80, Height: 24})
	send(topAnswer{overview: busyOverview(t), at: made})
	for _, step := range []struct {
		key  tea.KeyPressMsg
		want []string
		not  string
	}{
		{key: key('?'), want: []string{"Keys", "Enter", "MOVING"}, not: "cart"},
		{key: key('x'), want: []string{"SERVICE", "cart", "? help"}, not: "Keys"},
		{key: key('n'), want: []string{"by name"}},
		{key: tea.KeyPressMsg{Code: tea.KeyDown}, want: []string{"checkout"}},
		{
			key:  tea.KeyPressMsg{Code: tea.KeyEnter},
			want: []string{"checkout  plan 4711  mode bounded, policy latency, held: coverage 60%", "1200 requests/s", "us-east/c", "SENT TO", "us-east/b 75.0%, us-east/c 25.0%"},
			not:  "cart",
		},
		{key: tea.KeyPressMsg{Code: tea.KeyEscape}, want: []string{"cart", "idle"}, not: "SENT TO"},
	} {
		got := press(step.key)
		for _, want := range step.want {
			if !strings.Contains(got, want) {
				t.Errorf("after %s: no %q in\n%s", step.key, want, got)
			}
		}
		if step.not != "" && strings.Contains(got, step.not) {
			t.Errorf("after %s: %q in\n%s", step.key, step.not, got)
		}
		if lines := strings.Count(got, "\n") + 1; lines > 24 {
			t.Errorf("after %s: %d lines", step.key, lines)
		}
	}
	// What is chosen stays chosen as numbers change, and what has no answer says so.
	press(tea.KeyPressMsg{Code: tea.KeyEnter})
	send(topDetail{service: "checkout", err: errors.New("gone away")})
	if got := plainText((*m).View().Content); !strings.Contains(got, "! gone away") {
		t.Errorf("without an answer:\n%s", got)
	}
	press(tea.KeyPressMsg{Code: tea.KeyEscape})
}

// plainText leaves out how a text is shown.
func plainText(s string) string {
	for _, style := range []string{styleAlarm, styleColumn, styleChosen, styleFaint, styleNone} {
		s = strings.ReplaceAll(s, style, "")
	}
	return s
}

// TestTopLive: answers that are counted are printed, because the live view leaves
// nothing on the screen when it ends.
func TestTopLive(t *testing.T) {
	for _, tt := range []struct {
		name     string
		flags    topFlags
		terminal bool
		want     bool
	}{
		{name: "a terminal", terminal: true, want: true},
		{name: "a pipe"},
		{name: "--plain", flags: topFlags{plain: true}, terminal: true},
		{name: "-n 1", flags: topFlags{count: 1}, terminal: true},
		{name: "-o json", flags: topFlags{remoteFlags: remoteFlags{output: outputJSON}}, terminal: true},
	} {
		if tt.flags.output == "" {
			tt.flags.output = outputText
		}
		if got := tt.flags.live(tt.terminal); got != tt.want {
			t.Errorf("%s: live is %t", tt.name, got)
		}
	}
}

// TestTopBlockFits: a narrow terminal gets fewer columns, as in the live view.
func TestTopBlockFits(t *testing.T) {
	o := busyOverview(t)
	if wide := topBlock(&o, made, 0, 0); !strings.Contains(wide, "HEALTHY") || !strings.Contains(wide, "GAP") {
		t.Errorf("without a bound:\n%s", wide)
	}
	if narrow := topBlock(&o, made, 0, 60); strings.Contains(narrow, "GAP") || !strings.Contains(narrow, "SHIFT") {
		t.Errorf("of 60 columns:\n%s", narrow)
	}
}

// TestTopEnds: when there never was an answer.
func TestTopEnds(t *testing.T) {
	refused := errors.New("refused")
	m, cmd := (&topView{}).Update(topAnswer{err: refused})
	if cmd == nil || cmd() != tea.Quit() || !errors.Is(m.(*topView).failed, refused) {
		t.Errorf("without any answer: %+v", m)
	}
}

// TestTopGoesOnWithoutAnAnswer: a server that restarts comes back; that it was
// away is told.
func TestTopGoesOnWithoutAnAnswer(t *testing.T) {
	var out bytes.Buffer
	asked := 0
	ask := func(context.Context) (admin.Overview, error) {
		if asked++; asked == 2 {
			return admin.Overview{}, fmt.Errorf("attempt %d", asked)
		}
		return admin.Overview{}, nil
	}
	flags := &topFlags{interval: time.Millisecond, count: 3, sort: byName}
	if err := watchPlain(t.Context(), flags, ask, &out); err != nil || asked != 3 {
		t.Errorf("%d times: %v", asked, err)
	}
	if got := out.String(); strings.Count(got, "isobar top") != 2 || !strings.Contains(got, "no answer: attempt 2") {
		t.Errorf("got\n%s", got)
	}
}

// TestCoverageWithoutDemand: where no client sends, there is nothing to cover.
func TestCoverageWithoutDemand(t *testing.T) {
	if text := statusText(&admin.Status{Services: 2, Coverage: 1}); !strings.Contains(text, "services   2, 0 requests/s, coverage -\n") {
		t.Errorf("status says\n%s", text)
	}
	if text := statusText(&admin.Status{Services: 2, Coverage: 0.5, Demand: 10}); !strings.Contains(text, "services   2, 10 requests/s, coverage 50.0%\n") {
		t.Errorf("status says\n%s", text)
	}
}
